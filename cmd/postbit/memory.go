package main

import (
	"os"
	"runtime/debug"
)

const (
	// goMemory is what a process with an external database may take for Go's heap and stacks before the collector works harder.
	// What is live is a tenth of it, whatever the audience: without a limit the rest is garbage that waits to be collected.
	goMemory = 24 << 20
	// goGarbage is how much garbage there may be, in percent of what is live, before it is collected. With the usual 100 a heap of 3 MB
	// is collected tens of times a second, which is a third of a worker's part in loading users (bench/checks).
	goGarbage = 400
)

// holdMemory keeps the process small, unless the operator has said otherwise with GOMEMLIMIT or GOGC.
func holdMemory() {
	if os.Getenv("GOMEMLIMIT") == "" && os.Getenv("GOGC") == "" {
		debug.SetMemoryLimit(goMemory)
		debug.SetGCPercent(goGarbage)
	}
}

// collectSeldom is for the embedded store alone, whose heap is small beside its files.
func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(goGarbage)
	}
}
