//go:build race

package scheduler

func init() { sample = 5 }
