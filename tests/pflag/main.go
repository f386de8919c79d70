// Prints what kube-controller-manager's parsers make of flag values.
//
// The input is a JSON list of cases, each with the name of a flag and its values, one per occurrence. The
// output is a JSON list of results in the same order: the error of the command line, or the value as printed.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

type testCase struct {
	Flag   string   `json:"flag"`
	Values []string `json:"values"`
}

type result struct {
	Error   string `json:"error"`
	Printed string `json:"printed"`
}

// flags returns a flag of each type, under the name of a flag with this type.
func flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.Usage = func() {}
	set.StringSlice("disabled-metrics", nil, "")
	set.Int32Slice("tls-curve-preferences", nil, "")
	set.StringToString("allow-metric-labels", nil, "")
	set.Var(cliflag.NewNamedCertKeyArray(&[]cliflag.NamedCertKey{}), "tls-sni-cert-key", "")
	set.Var(cliflag.NewColonSeparatedMultimapStringStringAllowDefaultEmptyKey(&map[string][]string{}), "feature-gates", "")
	set.Var(logsapi.VModuleConfigurationPflag(&logsapi.VModuleConfiguration{}), "vmodule", "")
	set.Var(logsapi.VerbosityLevelPflag(new(logsapi.VerbosityLevel)), "v", "")
	set.Bool("profiling", true, "")
	set.Int32("concurrent-job-syncs", 5, "")
	set.Int("http2-max-streams-per-connection", 0, "")
	set.Float32("node-eviction-rate", 0.1, "")
	set.Float64("horizontal-pod-autoscaler-tolerance", 0.1, "")
	set.Duration("node-monitor-period", 5*time.Second, "")
	set.IP("bind-address", net.IPv4zero, "")
	set.Var(&resource.QuantityValue{}, "log-text-info-buffer-size", "")
	return set
}

func run() error {
	var cases []testCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		return err
	}
	results := make([]result, len(cases))
	for i, c := range cases {
		set := flags()
		var words []string
		for _, value := range c.Values {
			words = append(words, "--"+c.Flag+"="+value)
		}
		if err := set.Parse(words); err != nil {
			results[i].Error = err.Error()
		} else {
			results[i].Printed = set.Lookup(c.Flag).Value.String()
		}
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
