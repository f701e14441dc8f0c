package rules

// Window is a part of the day and a set of weekdays on the recipient's wall clock. It is half-open, may cross midnight
// (then it belongs to the day on which it opens), and its zero value is always open.
type Window struct {
	From, To uint16 // minutes after local midnight, 0..1440; From == To == 0: the whole day
	Days     Days
}

// Days is a set of weekdays, bit 1<<time.Weekday; 0 means every day.
type Days uint8
