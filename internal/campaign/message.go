package campaign

import "postbit/rules"

// Message is what a run of the campaign asks of its recipients; repeat is the template's.
func (s *Spec) Message(repeat rules.Repeat, run *Run) rules.Message {
	return rules.Message{
		Repeat:        repeat,
		InactiveAfter: s.Rules.InactiveAfter,
		MinGap:        s.Rules.MinGap,
		Window:        s.Rules.Window,
		ExpiresAt:     run.ExpiresAt(),
	}
}
