// Package e2e holds tests of the whole of postbit in one process: scheduler, workers and the public web side, on asynq's own servers, the
// MongoDB driver and an SMTP server, with nothing of postbit replaced. docs/cases.md says which case each of them shows.
package e2e
