package embedded

import (
	"encoding/json"
	"fmt"
	"os"
)

// holder is the process that has a directory, as the directory's lock file names it. Whether it still has it, only the lock
// itself tells: the text of a process that has ended stays.
type holder struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// heldBy names the process that holds a lock file, for an error.
func heldBy(lock string) string {
	var h holder
	text, err := os.ReadFile(lock)
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID == 0 {
		return "" // it has taken the lock this very moment, or is of an older version
	}
	if h.Command == "" {
		return fmt.Sprintf(": pid %d", h.PID)
	}
	return fmt.Sprintf(": `%s` (pid %d)", h.Command, h.PID)
}
