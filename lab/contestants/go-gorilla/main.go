// An echo on gorilla/websocket. GOMAXPROCS says how many threads run it.
//
// ADDRESS=IP server PORT [CERTIFICATE KEY]
package main

import (
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/gorilla/websocket"
)

// As moonwire by default: no compression, 16 MiB for a message.
const messageBytesMax = 16 << 20

var upgrader = websocket.Upgrader{
	// Buffers of net/http are used again.
	CheckOrigin: func(*http.Request) bool { return true },
}

func echo(writer http.ResponseWriter, request *http.Request) {
	socket, err := upgrader.Upgrade(writer, request, nil)
	if err != nil {
		return
	}
	defer socket.Close()
	socket.SetReadLimit(messageBytesMax)
	for {
		kind, message, err := socket.ReadMessage()
		if err != nil {
			return
		}
		if socket.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/gorilla/websocket" {
			return fmt.Sprintf("gorilla/websocket %s, %s", module.Version, runtime.Version())
		}
	}
	return "gorilla/websocket of an unknown version"
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 1 && arguments[0] == "--version" {
		fmt.Println(version())
		return
	}
	if len(arguments) != 1 && len(arguments) != 3 {
		log.Fatal("usage: server PORT [CERTIFICATE KEY]")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("ADDRESS"), arguments[0]))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on port %s, %d threads\n", arguments[0], runtime.GOMAXPROCS(0))
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	// Without HTTP/2, which the lab's clients do not offer.
	// As all contestants: TLS 1.3, keys by X25519, no tickets. The suites of TLS 1.3 are Go's own.
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{
		MinVersion:             tls.VersionTLS13,
		CurvePreferences:       []tls.CurveID{tls.X25519},
		SessionTicketsDisabled: true,
	}}
	if len(arguments) == 3 {
		err = server.ServeTLS(listener, arguments[1], arguments[2])
	} else {
		err = server.Serve(listener)
	}
	log.Fatal(err)
}
