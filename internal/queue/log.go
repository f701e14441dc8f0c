package queue

import (
	"fmt"
	"log/slog"
)

// logger hands asynq's own messages to slog, one level down: what they call fatal is a stopped component of a server
// that goes on, and what they call info is start and stop.
type logger struct{ log *slog.Logger }

func (l logger) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l logger) Info(args ...any)  { l.log.Debug(fmt.Sprint(args...)) }
func (l logger) Warn(args ...any)  { l.log.Info(fmt.Sprint(args...)) }
func (l logger) Error(args ...any) { l.log.Warn(fmt.Sprint(args...)) }
func (l logger) Fatal(args ...any) { l.log.Error(fmt.Sprint(args...)) }
