// What server.cpp uses of the C interface of uWebSockets; socketify has the library and no header.
#pragma once

#include <cstddef>

extern "C" {

struct uws_app_t;
struct uws_websocket_t;
struct uws_res_t;
struct uws_req_t;
struct us_listen_socket_t;

struct us_socket_context_options_t {
  const char *key_file_name;
  const char *cert_file_name;
  const char *passphrase;
  const char *dh_params_file_name;
  const char *ca_file_name;
  const char *ssl_ciphers;
  int ssl_prefer_low_memory_usage;
};

enum uws_compress_options_t { DISABLED = 0 };
enum uws_opcode_t { TEXT = 1, BINARY = 2 };
enum uws_sendstatus_t { BACKPRESSURE, SUCCESS, DROPPED };

struct uws_app_listen_config_t {
  int port;
  const char *host;
  int options;
};

typedef void (*uws_event_handler)(uws_websocket_t *, void *);
typedef void (*uws_message_handler)(uws_websocket_t *, const char *, size_t, uws_opcode_t, void *);
typedef void (*uws_listen_handler)(us_listen_socket_t *, uws_app_listen_config_t, void *);

struct uws_socket_behavior_t {
  uws_compress_options_t compression;
  unsigned int maxPayloadLength;
  unsigned short idleTimeout;
  unsigned int maxBackpressure;
  bool closeOnBackpressureLimit;
  bool resetIdleTimeoutOnSend;
  bool sendPingsAutomatically;
  unsigned short maxLifetime;
  void (*upgrade)(uws_res_t *, uws_req_t *, void *, void *);
  uws_event_handler open;
  uws_message_handler message;
  uws_event_handler drain;
  void (*ping)(uws_websocket_t *, const char *, size_t, void *);
  void (*pong)(uws_websocket_t *, const char *, size_t, void *);
  void (*close)(uws_websocket_t *, int, const char *, size_t, void *);
  void (*subscription)(uws_websocket_t *, const char *, size_t, int, int, void *);
};

uws_app_t *uws_create_app(int ssl, us_socket_context_options_t options);
bool uws_constructor_failed(int ssl, uws_app_t *app);
void uws_ws(int ssl, uws_app_t *app, const char *pattern, uws_socket_behavior_t behavior, void *data);
uws_sendstatus_t uws_ws_send(int ssl, uws_websocket_t *ws, const char *message, size_t length,
                             uws_opcode_t opcode);
void uws_ws_end(int ssl, uws_websocket_t *ws, int code, const char *message, size_t length);
void uws_app_listen_with_config(int ssl, uws_app_t *app, uws_app_listen_config_t config,
                                uws_listen_handler handler, void *data);
void uws_app_run(int ssl, uws_app_t *app);
}
