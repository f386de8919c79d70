// Scrapes pages of a kubelet as metrics-server does, and prints the usage of all pods after each scrape, as its
// API returns it.
//
// The pages come from stdin. Each is a byte, its length in four bytes, big-endian, and its bytes. The byte n
// starts with an empty storage, s goes on. Each page has a line of JSON in the output, null for a refused page.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/metrics-server/pkg/scraper/client"
	kubelet "sigs.k8s.io/metrics-server/pkg/scraper/client/resource"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

// interval is metrics-server's --metric-resolution.
const interval = time.Minute

type podUsage struct {
	Namespace  string               `json:"namespace"`
	Name       string               `json:"name"`
	Time       int64                `json:"time"`
	Window     int64                `json:"window"`
	Containers map[string][2]uint64 `json:"containers"`
}

// usage scrapes each page of stdin as metrics-server scrapes a kubelet, and prints the usage of all pods.
func usage(encode func(any)) error {
	var page []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(page)
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	getter, err := kubelet.NewForConfig(&client.KubeletClientConfig{
		Client:              rest.Config{},
		AddressTypePriority: []corev1.NodeAddressType{corev1.NodeInternalIP},
		Scheme:              "http",
		DefaultPort:         number,
	})
	if err != nil {
		return err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}},
	}
	store := storage.NewStorage(interval)
	known := map[types.NamespacedName]bool{}
	return each(func(kind byte, next []byte) {
		if kind == 'n' { // a new cluster
			store = storage.NewStorage(interval)
			known = map[types.NamespacedName]bool{}
		}
		page = next
		batch, err := getter.GetMetrics(context.Background(), node)
		if err != nil {
			encode(nil)
			return
		}
		store.Store(batch)
		for pod := range batch.Pods {
			known[pod] = true
		}
		pods := []*metav1.PartialObjectMetadata{}
		for pod := range known {
			pods = append(pods, &metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			})
		}
		metrics, err := store.GetPodMetrics(pods...)
		if err != nil {
			panic(err)
		}
		all := []podUsage{}
		for _, pod := range metrics {
			one := podUsage{pod.Namespace, pod.Name, 0, int64(pod.Window.Duration), map[string][2]uint64{}}
			if !pod.Timestamp.IsZero() {
				one.Time = pod.Timestamp.UnixNano()
			}
			for _, container := range pod.Containers {
				one.Containers[container.Name] = [2]uint64{
					uint64(container.Usage.Cpu().ScaledValue(resource.Nano)),
					uint64(container.Usage.Memory().Value()),
				}
			}
			all = append(all, one)
		}
		slices.SortFunc(all, func(a, b podUsage) int {
			return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
		})
		encode(all)
	})
}

// each calls handle with every page of stdin.
func each(handle func(kind byte, page []byte)) error {
	in := bufio.NewReader(os.Stdin)
	for {
		kind, err := in.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err != nil {
			return err
		}
		page := make([]byte, length)
		if _, err := io.ReadFull(in, page); err != nil {
			return err
		}
		handle(kind, page)
	}
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	err := usage(func(value any) {
		if err := encoder.Encode(value); err != nil {
			panic(err)
		}
	})
	if err := errors.Join(err, out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "metrics-server:", err)
		os.Exit(1)
	}
}
