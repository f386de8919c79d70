// kubelet forwards ports as a kubelet does, with the code of the kubelet, to ports of this machine: every pod is taken to
// run on the network of its node. It does nothing else.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const (
	idle     = 4 * time.Hour
	creation = 30 * time.Second
)

func main() {
	address := flag.String("address", "127.0.0.1:10250", "where to listen")
	certificate := flag.String("tls-cert-file", "", "the certificate")
	key := flag.String("tls-private-key-file", "", "its key")
	flag.Parse()

	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", forward)
	server := &http.Server{
		Addr:              *address,
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		// A connection is taken over, which HTTP/2 does not allow.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}

func forward(w http.ResponseWriter, r *http.Request) {
	log.Printf("%s %s, protocols %q", r.Method, r.URL, r.Header.Values("Sec-WebSocket-Protocol"))
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(
		w, r, node{}, r.PathValue("pod"), "", options, idle, creation, portforward.SupportedProtocols,
	)
}

// node is the network of the node.
type node struct{}

func (node) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer connection.Close()
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(connection, stream)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(stream, connection)
		ended <- err
	}()
	log.Printf("%s: port %d ended: %v", pod, port, <-ended)
	return nil
}
