package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"postbit/internal/clock"
	"postbit/internal/config"
	"postbit/scheduler"
	"postbit/worker"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or settings; nothing was done
	exitNo     = 3 // it worked, and the answer is no
)

// exitError gives an error an exit code other than exitFailed. err nil: the command has said all there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// errNo ends a command whose answer, already printed, is no.
var errNo = &exitError{code: exitNo}

// usage marks an error as one of usage: exit code 2, nothing was done.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

type cli struct {
	JSON   bool   `name:"json" help:"Print JSON, in the shapes of docs/json.md."`
	Config string `name:"config" env:"POSTBIT_CONFIG" placeholder:"FILE" help:"Settings file; postbit.yaml if it is there."`

	Demo      demoCmd      `cmd:"" help:"Everything in one process: synthetic users, a real run, opens."`
	Serve     serveCmd     `cmd:"" help:"Run the scheduler, the worker and the web side."`
	Templates templatesCmd `cmd:"" help:"Messages and the bits that they own."`
	Campaigns campaignsCmd `cmd:"" help:"What is sent to whom, and when."`
	Send      sendCmd      `cmd:"" help:"Send one mail, through all rules."`
	Explain   explainCmd   `cmd:"" help:"Show what the rules say about one user."`
	Report    reportCmd    `cmd:"" help:"Counts of a campaign: the funnel by rule, opens by kind."`
	Pixel     pixelCmd     `cmd:"" help:"Make a pixel for a mail that is sent elsewhere."`
	Bits      bitsCmd      `cmd:"" help:"Which templates a user was ever sent."`
	Users     usersCmd     `cmd:"" help:"Suppress users, or look at one."`
	Bounces   bouncesCmd   `cmd:"" help:"Read mails that came back: bounces and complaints."`
	Doctor    doctorCmd    `cmd:"" help:"Check that everything is reachable, indexed, signed and shaped as expected."`
	Minimongo minimongoCmd `cmd:"" help:"The embedded document store on its own, for development and tests."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

// app is what every command has at hand.
type app struct {
	in   io.Reader
	out  io.Writer // data
	err  io.Writer // talk
	json bool
	cfg  *config.Config
	clk  *clock.Clock
	log  *slog.Logger

	command  string // such as "postbit templates push"
	patience time.Duration
	txt      lookupTXT
}

// program is what the process gives to a command.
type program struct {
	in       io.Reader
	out, err io.Writer
	clk      *clock.Clock
	patience time.Duration // for a data directory that another command holds; 0: as embedded.Options says
	txt      lookupTXT     // nil: the machine's
}

// run is the program. It returns the exit code.
func (p program) run(ctx context.Context, args ...string) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	var c cli
	name := commandIn(args)
	flags := config.NewFlags(name == "" || name == "serve" || name == "doctor") // every command has them, few have a use for most
	exited := false
	options := []kong.Option{
		kong.Name("postbit"),
		kong.Description("Email campaigns for the users you keep in MongoDB."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 120}),
		kong.Writers(p.out, p.err),
		kong.Exit(func(int) { exited = true }),
		kong.ExplicitGroups([]kong.Group{{Key: "settings", Title: "Settings (also as environment variables and in postbit.yaml; more in docs/settings.md):"}}),
	}
	if !ownParts(name) {
		options = append(options, kong.Embed(flags.Target()))
	}
	parser, err := kong.New(&c, options...)
	if err != nil {
		fmt.Fprintln(p.err, "postbit:", err)
		return exitFailed
	}
	kctx, err := parser.Parse(args)
	if exited { // --help has been printed
		return exitDone
	}
	if err != nil {
		fmt.Fprintf(p.err, "postbit: %v\n", err)
		var perr *kong.ParseError
		if errors.As(err, &perr) && perr.Context != nil && perr.Context.Selected() != nil {
			fmt.Fprintf(p.err, "see %s --help\n", perr.Context.Selected().FullPath())
		} else {
			fmt.Fprintln(p.err, "see postbit --help")
		}
		return exitUsage
	}
	a := &app{in: p.in, out: p.out, err: p.err, json: c.JSON, clk: p.clk, command: kctx.Selected().FullPath(), patience: p.patience, txt: p.txt}
	if a.cfg, err = settingsFor(name, flags, c.Config); err != nil {
		if name == "bounces" && c.Bounces.piped() {
			err = tempFail(err)
		}
		return a.fail(err)
	}
	a.log = newLog(p.err, a.cfg)
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run(a)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return a.fail(err)
}

// ownParts holds for commands that run on parts of their own whatever the settings say: a fault in those must not stand in
// the way of a demo.
func ownParts(command string) bool {
	return command == "demo" || command == "minimongo" || command == "version"
}

func settingsFor(command string, flags *config.Flags, file string) (*config.Config, error) {
	if ownParts(command) {
		c := config.Default()
		c.LogLevel = slog.LevelWarn
		return c, nil
	}
	c, err := config.Load(flags.Values(), os.LookupEnv, file)
	if err == nil && command != "serve" && c.Origin("log.level") == "" {
		c.LogLevel = slog.LevelWarn // who runs a command gets its answer, not its diary
	}
	return c, err
}

// commandIn is the command that the arguments name, before they have been parsed; "" where there is none.
func commandIn(args []string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--config":
			i++ // and its value
		case !strings.HasPrefix(args[i], "-"):
			return args[i]
		}
	}
	return ""
}

// fail says what went wrong and gives the exit code for it.
func (a *app) fail(err error) int {
	if err == nil {
		return exitDone
	}
	code := exitFailed
	var own *exitError
	var settings *config.Error
	switch {
	case errors.As(err, &own):
		code = own.code
		if own.err == nil {
			return code
		}
	case errors.As(err, &settings), errors.Is(err, worker.ErrKey), errors.Is(err, scheduler.ErrKey):
		code = exitUsage
	}
	fmt.Fprintf(a.err, "postbit: %s\n", a.cfg.Scrub(err.Error()))
	return code
}

func newLog(w io.Writer, cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
