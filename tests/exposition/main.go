// Prints what Prometheus' own parsers make of pages and queries.
//
// Usage: exposition pages|queries. Both read texts from stdin. Each text is a byte for its kind, its length in
// four bytes, big-endian, and its bytes. Each has a line of JSON in the output, null for a refused text.
//
// pages: in the text format 0.0.4. The output is the series of the page.
//
// queries: the output is the matchers of each selector of a PromQL query.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
)

// series is a value with its labels, each as hexadecimal bytes, in their order, with the name.
type series struct {
	Labels    [][2]string `json:"labels"`
	Bits      string      `json:"bits"`
	Timestamp *string     `json:"timestamp"`
}

// timestamp prints one. Conversion of a float beyond 64 bits depends on the processor.
func timestamp(value *int64) *string {
	if value == nil {
		return nil
	}
	text := strconv.FormatInt(*value, 10)
	if *value == math.MinInt64 || *value == math.MaxInt64 {
		text = "overflow"
	}
	return &text
}

func parse(page []byte) ([]series, bool) {
	parser, err := textparse.New(page, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		panic(err)
	}
	all := []series{}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return all, true
		}
		if err != nil {
			return nil, false
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, at, value := parser.Series()
		var set labels.Labels
		parser.Labels(&set)
		one := series{Bits: strconv.FormatUint(math.Float64bits(value), 16), Timestamp: timestamp(at)}
		set.Range(func(label labels.Label) {
			one.Labels = append(one.Labels, [2]string{
				hex.EncodeToString([]byte(label.Name)), hex.EncodeToString([]byte(label.Value)),
			})
		})
		slices.SortFunc(one.Labels, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
		all = append(all, one)
	}
}

// selectors returns the matchers of each selector of a query.
func selectors(query string) ([][]string, bool) {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return nil, false
	}
	all := [][]string{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			matchers := []string{}
			for _, matcher := range selector.LabelMatchers {
				matchers = append(matchers, matcher.String())
			}
			all = append(all, matchers)
		}
		return nil
	})
	return all, true
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

func run(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: exposition pages|queries")
	}
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	var failed error
	encode := func(value any) {
		if err := encoder.Encode(value); err != nil && failed == nil {
			failed = err
		}
	}
	switch arguments[0] {
	case "pages":
		if err := each(func(_ byte, page []byte) {
			if all, accepted := parse(page); accepted {
				encode(all)
			} else {
				encode(nil)
			}
		}); err != nil {
			return err
		}
	case "queries":
		if err := each(func(_ byte, query []byte) {
			if all, accepted := selectors(string(query)); accepted {
				encode(all)
			} else {
				encode(nil)
			}
		}); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown command %q", arguments[0])
	}
	if failed != nil {
		return failed
	}
	return out.Flush()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "exposition:", err)
		os.Exit(1)
	}
}
