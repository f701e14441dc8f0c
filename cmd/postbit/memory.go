package main

import (
	"os"
	"runtime/debug"
)

// goMemory is what a process with an external database may take for Go's heap and stacks before the collector works harder.
// What is live is a tenth of it, whatever the audience: without a limit the rest is garbage that waits to be collected.
const goMemory = 24 << 20

// holdMemory keeps the process small, unless the operator has said otherwise with GOMEMLIMIT or GOGC.
func holdMemory() {
	if os.Getenv("GOMEMLIMIT") == "" && os.Getenv("GOGC") == "" {
		debug.SetMemoryLimit(goMemory)
	}
}
