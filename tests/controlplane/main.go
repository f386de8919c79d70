// Command controlplane is etcd, kube-apiserver and kube-controller-manager in
// one binary. The three share most of their dependencies, so one link step and
// one file on disk serve all of them; which one runs is decided by the name
// that the binary is started under, as with busybox.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // the machine that runs the tests may have no zone files

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* and workqueue_* series
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	default:
		fmt.Fprintf(os.Stderr, "%s: start this program as etcd, kube-apiserver or kube-controller-manager\n", name)
		os.Exit(2)
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
