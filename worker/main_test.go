package worker

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Tests that cut connections spend their time waiting for the driver to find its server again: many may run at once.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "16")
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
