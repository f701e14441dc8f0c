package backfill

import (
	"encoding/binary"
	"slices"
)

// address is what the sorter of emails holds: the facts of the source and the users who have the address.
type address struct {
	facts []byte // nil: the source does not name it
	users [][]byte
}

// maxShared bounds how many users one address may stand for. Beyond it is a placeholder of some kind.
const maxShared = 100

func (a address) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(len(a.facts)))
	to = append(to, a.facts...)
	for _, u := range a.users {
		to = append(binary.AppendUvarint(to, uint64(len(u))), u...)
	}
	return to
}

func (a *address) read(from []byte) {
	a.facts, a.users = nil, a.users[:0]
	take := func() []byte {
		n, w := binary.Uvarint(from)
		part := from[w : w+int(n)]
		from = from[w+int(n):]
		return part
	}
	if f := take(); len(f) > 0 {
		a.facts = f
	}
	for len(from) > 0 {
		a.users = append(a.users, take())
	}
}

// combineAddress is for sorters. Nearly always one of the two is a row, or a user whom no row has named yet; what is written then need not
// be taken apart.
func combineAddress(x, y []byte) []byte {
	xFacts, xUsers := splitAddress(x)
	yFacts, yUsers := splitAddress(y)
	switch {
	case len(xUsers) == 0 && len(yFacts) == 0:
		return append(x, yUsers...)
	case len(xFacts) == 0 && len(yUsers) == 0:
		return slices.Replace(x, 0, len(x)-len(xUsers), y...)
	case len(xUsers) == 0 && len(yUsers) == 0:
		var room [128]byte
		both := combineFacts(append(room[:0], xFacts...), yFacts)
		return append(binary.AppendUvarint(x[:0], uint64(len(both))), both...)
	}
	var a, b address
	a.read(x)
	b.read(y)
	switch {
	case a.facts == nil:
		a.facts = b.facts
	case b.facts != nil:
		a.facts = combineFacts(slices.Clone(a.facts), b.facts)
	}
	for _, u := range b.users {
		if len(a.users) < maxShared {
			a.users = append(a.users, u)
		}
	}
	return a.append(make([]byte, 0, len(x)+len(y)))
}

// splitAddress finds the facts and the users of a written address, as they are written.
func splitAddress(from []byte) (facts, users []byte) {
	n, w := binary.Uvarint(from)
	return from[w : w+int(n)], from[w+int(n):]
}
