// An echo and the amplifying JSON service on uWebSockets: an app with a loop for each worker, all on
// one port, as its examples have it.
//
// server PORT WORKERS [CERTIFICATE KEY]

#include "uws.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

int port, workers, replies, ssl;
const char *address;
us_socket_context_options_t files{};
std::atomic<int> listening{0};

// As moonwire by default: no compression, no end for idle connections, 16 MiB for a message and for
// what waits to be written.
uws_socket_behavior_t behavior(uws_message_handler message) {
  uws_socket_behavior_t behavior{};
  behavior.compression = DISABLED;
  behavior.maxPayloadLength = 16 << 20;
  behavior.maxBackpressure = 16 << 20;
  behavior.message = message;
  return behavior;
}

void echo(uws_websocket_t *ws, const char *message, size_t length, uws_opcode_t opcode, void *) {
  uws_ws_send(ssl, ws, message, length, opcode);
}

// Microseconds since 1970.
int64_t now_micros() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

// Several answers to each message. The clock is read before the message is parsed, and the reply is
// written once, as in the other servers of the lab.
void amplify(uws_websocket_t *ws, const char *message, size_t length, uws_opcode_t opcode, void *) {
  int64_t received = now_micros();
  auto request = nlohmann::json::parse(message, message + length, nullptr, false);
  if (!request.is_object() || !request["created_at"].is_number_integer()) {
    const char reason[] = "expected a JSON object";
    uws_ws_end(ssl, ws, 1007, reason, sizeof reason - 1);
    return;
  }
  int64_t sent = request["created_at"];
  nlohmann::json reply{
      {"client_id", request["client_id"]},
      {"msg_id", request["msg_id"]},
      {"msg", std::move(request["msg"])},
      {"created_at", received},
      {"client_ts", sent},
      {"server_latency", received - sent},
  };
  // What is no UTF-8 is replaced: the reply is then not what was sent, which the client notices.
  auto text = reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (int number = 0; number < replies; number += 1) {
    uws_ws_send(ssl, ws, text.data(), text.size(), opcode);
  }
}

void on_listen(us_listen_socket_t *socket, uws_app_listen_config_t, void *) {
  if (!socket) {
    std::fprintf(stderr, "port %d cannot be listened on\n", port);
    std::exit(1);
  }
  if (++listening == workers) {
    std::printf("listening on port %d, %d threads\n", port, workers);
    std::fflush(stdout);
  }
}

void serve() {
  uws_app_t *app = uws_create_app(ssl, files);
  if (!app || uws_constructor_failed(ssl, app)) {
    std::fprintf(stderr, "the certificate or its key cannot be used\n");
    std::exit(1);
  }
  uws_ws(ssl, app, "/echo", behavior(echo), nullptr);
  uws_ws(ssl, app, "/amplify", behavior(amplify), nullptr);
  uws_app_listen_with_config(ssl, app, {port, address, 0}, on_listen, nullptr);
  uws_app_run(ssl, app);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc == 2 && !std::strcmp(argv[1], "--version")) {
    std::puts("socketify " SOCKETIFY_VERSION);
    return 0;
  }
  const char *amplification = std::getenv("REPLIES");
  address = std::getenv("ADDRESS");
  if ((argc != 3 && argc != 5) || !amplification || !address) {
    std::fputs("usage: ADDRESS=IP REPLIES=N server PORT WORKERS [CERTIFICATE KEY]\n", stderr);
    return 1;
  }
  port = std::atoi(argv[1]);
  workers = std::atoi(argv[2]);
  replies = std::atoi(amplification);
  if (argc == 5) {
    ssl = 1;
    files.cert_file_name = argv[3];
    files.key_file_name = argv[4];
  }
  std::vector<std::thread> threads;
  for (int number = 0; number < workers; number += 1) threads.emplace_back(serve);
  for (auto &thread : threads) thread.join();
}
