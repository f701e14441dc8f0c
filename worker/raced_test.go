//go:build race

package worker

func init() { sample = 4 }
