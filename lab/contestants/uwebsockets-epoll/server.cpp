// An echo on uWebSockets: an app with a loop for each worker, all on one port, as its examples have
// it.
//
// server PORT WORKERS [CERTIFICATE KEY]

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <App.h>

namespace {

struct Nothing {};

int port, workers;
const char *address;
std::atomic<int> listening{0};

// As moonwire by default: no compression, no end for idle connections, 16 MiB for a message and for
// what waits to be written.
template <typename App> void serve(App app) {
  app.template ws<Nothing>("/echo", {
    .compression = uWS::DISABLED,
    .maxPayloadLength = 16 << 20,
    .idleTimeout = 0,
    .maxBackpressure = 16 << 20,
    .sendPingsAutomatically = false,
    .message = [](auto *ws, std::string_view message, uWS::OpCode opcode) {
      ws->send(message, opcode);
    },
  });
  app.listen(address, port, [](us_listen_socket_t *socket) {
    if (!socket) {
      std::fprintf(stderr, "port %d cannot be listened on\n", port);
      std::exit(1);
    }
    if (++listening == workers) {
      std::printf("listening on port %d, %d threads\n", port, workers);
      std::fflush(stdout);
    }
  });
  app.run();
}

}  // namespace

int main(int argc, char **argv) {
  if (argc == 2 && !std::strcmp(argv[1], "--version")) {
    std::puts("libuwebsockets-sys " VERSION);
    return 0;
  }
  address = std::getenv("ADDRESS");
  if ((argc != 3 && argc != 5) || !address) {
    std::fputs("usage: ADDRESS=IP server PORT WORKERS [CERTIFICATE KEY]\n", stderr);
    return 1;
  }
  port = std::atoi(argv[1]);
  workers = std::atoi(argv[2]);
  std::vector<std::thread> threads;
  for (int number = 0; number < workers; number += 1) {
    threads.emplace_back([=] {
      if (argc == 3) return serve(uWS::App());
      uWS::SocketContextOptions files;
      files.cert_file_name = argv[3];
      files.key_file_name = argv[4];
      uWS::SSLApp app(files);
      if (app.constructorFailed()) {
        std::fputs("the certificate or its key cannot be used\n", stderr);
        std::exit(1);
      }
      serve(std::move(app));
    });
  }
  for (auto &thread : threads) thread.join();
}
