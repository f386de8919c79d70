// Records decisions of Knative's Autoscaler on random load, a scenario per line.
//
// Usage: kpa FIRST_SEED COUNT. Equal seeds give equal scenarios. The form is described in
// tests/conformance/kpa/README.md. These scenarios go beyond the ones there: failed scrapes, seconds with
// several samples, samples that arrive late or too late, idle spans longer than the windows, and ticks that
// are not two seconds apart.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/serving/pkg/autoscaler/aggregation"
	"knative.dev/serving/pkg/autoscaler/metrics"
	"knative.dev/serving/pkg/autoscaler/scaling"
)

type spec struct {
	TargetValue           float64 `json:"targetValue"`
	StableWindowSeconds   int64   `json:"stableWindowSeconds"`
	PanicWindowSeconds    int64   `json:"panicWindowSeconds"`
	PanicThreshold        float64 `json:"panicThreshold"`
	MaxScaleUpRate        float64 `json:"maxScaleUpRate"`
	MaxScaleDownRate      float64 `json:"maxScaleDownRate"`
	ScaleDownDelaySeconds int64   `json:"scaleDownDelaySeconds"`
	ActivationScale       int32   `json:"activationScale"`
}

type sample struct {
	At    int64   `json:"at"`
	Value float64 `json:"value"`
}

type tick struct {
	At      int64    `json:"at"`
	Samples []sample `json:"samples"`
	Ready   int      `json:"ready"`
	Valid   bool     `json:"valid"`
	Desired int32    `json:"desired"`
}

type scenario struct {
	Name         string `json:"name"`
	Spec         spec   `json:"spec"`
	InitialReady int    `json:"initialReady"`
	Ticks        []tick `json:"ticks"`
}

// windows answers as the collector of the metrics does, without its scrapes.
type windows struct {
	stable, panic *aggregation.TimedFloat64Buckets
}

func (w windows) StableAndPanicConcurrency(_ types.NamespacedName, now time.Time) (float64, float64, error) {
	if w.stable.IsEmpty(now) {
		return 0, 0, metrics.ErrNoData
	}
	return w.stable.WindowAverage(now), w.panic.WindowAverage(now), nil
}

func (w windows) StableAndPanicRPS(key types.NamespacedName, now time.Time) (float64, float64, error) {
	return w.StableAndPanicConcurrency(key, now)
}

type pods struct{ ready int }

func (p *pods) ReadyCount() (int, error)    { return p.ready, nil }
func (p *pods) NotReadyCount() (int, error) { return 0, nil }

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

func choose[T any](random *rand.Rand, values ...T) T { return values[random.Intn(len(values))] }

func record(seed int64) scenario {
	random := rand.New(rand.NewSource(seed))
	s := spec{
		TargetValue:           choose(random, 0.01, 0.3, 0.5, 1, 7, 10, 33.3, 70, 100),
		StableWindowSeconds:   choose[int64](random, 6, 7, 12, 30, 45, 60, 120, 300),
		PanicThreshold:        choose(random, 1.1, 1.5, 2, 3.7, 10),
		MaxScaleUpRate:        choose(random, 1.01, 1.1, 1.5, 2, 10, 1000),
		MaxScaleDownRate:      choose(random, 1.01, 1.5, 2, 3.3, 10),
		ScaleDownDelaySeconds: choose[int64](random, 0, 0, 1, 2, 3, 10, 15, 30, 90),
		ActivationScale:       choose[int32](random, 0, 0, 0, 1, 2, 3, 12),
	}
	share := choose(random, 0.01, 0.05, 0.1, 0.2, 0.5, 1)
	s.PanicWindowSeconds = max(1, int64(math.Round(float64(s.StableWindowSeconds)*share)))
	counter := &pods{ready: random.Intn(2)}
	load := windows{
		aggregation.NewTimedFloat64Buckets(seconds(s.StableWindowSeconds), time.Second),
		aggregation.NewTimedFloat64Buckets(seconds(s.PanicWindowSeconds), time.Second),
	}
	result := scenario{Name: fmt.Sprintf("kpa-seed-%d", seed), Spec: s, InitialReady: counter.ready}
	autoscaler := scaling.New(context.Background(), "shop", "web", load, counter, &scaling.DeciderSpec{
		MaxScaleUpRate:   s.MaxScaleUpRate,
		MaxScaleDownRate: s.MaxScaleDownRate,
		TargetValue:      s.TargetValue,
		PanicThreshold:   s.PanicThreshold,
		StableWindow:     seconds(s.StableWindowSeconds),
		ScaleDownDelay:   seconds(s.ScaleDownDelaySeconds),
		Reachable:        true,
		ActivationScale:  s.ActivationScale,
	})

	start := time.Unix(1_800_000_000, 0)
	logger := zap.NewNop().Sugar()
	irregular, failing := random.Intn(4) == 0, choose(random, 0, 0.05, 0.3)
	level, silentUntil, at := s.TargetValue*random.Float64()*4, int64(0), int64(0)
	if random.Intn(4) == 0 {
		silentUntil = int64(random.Intn(12))
	}
	desired := int32(counter.ready)
	for range 40 + random.Intn(80) {
		step := int64(2)
		if irregular {
			step = choose[int64](random, 1, 1, 2, 2, 2, 3, 5)
		}
		var samples []sample
		for second := at + 1; second <= at+step; second++ {
			switch random.Intn(60) {
			case 0:
				level = s.TargetValue * random.Float64() * choose(random, 1.0, 10, 100)
			case 1:
				level = 0
			case 2:
				silentUntil = second + int64(random.Intn(int(s.StableWindowSeconds)+s.slack()))
			}
			if second < silentUntil || random.Float64() < failing {
				continue
			}
			for range choose(random, 1, 1, 1, 1, 1, 2, 3) {
				value := level * (0.8 + 0.4*random.Float64())
				if random.Intn(2) == 0 {
					value = math.Round(value)
				}
				moment := second
				if random.Intn(40) == 0 {
					moment -= int64(random.Intn(int(s.StableWindowSeconds) + s.slack()))
				}
				samples = append(samples, sample{max(moment, 0), value})
			}
		}
		at += step
		for _, one := range samples {
			load.stable.Record(start.Add(seconds(one.At)), one.Value)
			load.panic.Record(start.Add(seconds(one.At)), one.Value)
		}
		// Pods follow the decision, late and not all at once.
		switch random.Intn(5) {
		case 0, 1:
			counter.ready = int(desired)
		case 2:
			counter.ready = (counter.ready + int(desired)) / 2
		case 3:
			if random.Intn(10) == 0 {
				counter.ready = 0
			}
		}
		outcome := autoscaler.Scale(logger, start.Add(seconds(at)))
		if outcome.ScaleValid {
			desired = outcome.DesiredPodCount
		}
		result.Ticks = append(result.Ticks, tick{at, samples, counter.ready, outcome.ScaleValid, outcome.DesiredPodCount})
	}
	return result
}

// slack is how many seconds a late sample or a silence can exceed the stable window.
func (s spec) slack() int { return 1 + int(s.StableWindowSeconds/3) }

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kpa FIRST_SEED COUNT")
		os.Exit(2)
	}
	first, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kpa: invalid seed:", err)
		os.Exit(2)
	}
	count, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kpa: invalid count:", err)
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for seed := first; seed < first+count; seed++ {
		if err := encoder.Encode(record(seed)); err != nil {
			fmt.Fprintln(os.Stderr, "kpa: cannot write:", err)
			os.Exit(1)
		}
	}
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "kpa: cannot write:", err)
		os.Exit(1)
	}
}
