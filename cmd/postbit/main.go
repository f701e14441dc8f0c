// Command postbit dispatches email campaigns to the users a team keeps in MongoDB. `postbit --help` lists what it does;
// this package only wires the others together, one file for each subcommand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // zones of recipients must not depend on the machine

	"postbit/internal/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(program{in: os.Stdin, out: os.Stdout, err: os.Stderr, clk: clock.New()}.run(ctx, os.Args[1:]...))
}
