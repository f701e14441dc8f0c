package minimongo

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// An update is a compiled update document: a replacement, or modifiers in the order they apply.
type update struct {
	replacement document
	mods        []modifier
}

type modifier struct {
	op    string
	path  string
	parts []string
	arg   value
	each  []value // $push
	slice *int64  // $push
}

func parseUpdate(v value) (*update, error) {
	if v.Type == tArray {
		return nil, errorf(codeFailedToParse, "minimongo has no pipeline-style updates")
	}
	if v.Type != tDocument {
		return nil, errorf(codeFailedToParse, "Update argument must be either an object or an array")
	}
	if !isModifiers(v.Data) {
		for it := elementsOf(v.Data); ; {
			k, _, ok := it.next()
			if !ok {
				return &update{replacement: v.Data}, nil
			}
			if bytes.HasPrefix(k, []byte("$")) {
				return nil, errorf(codeDollarField, "The dollar ($) prefixed field '%s' is not allowed in the context of an update's replacement document.", k)
			}
		}
	}
	u := &update{}
	for it := elementsOf(v.Data); ; {
		k, arg, ok := it.next()
		if !ok {
			break
		}
		if err := u.addModifiers(string(k), arg); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(u.mods, func(a, b modifier) int { return comparePaths(a.parts, b.parts) })
	for i := 1; i < len(u.mods); i++ {
		a, b := u.mods[i-1], u.mods[i]
		if len(a.parts) <= len(b.parts) && slices.Equal(a.parts, b.parts[:len(a.parts)]) {
			return nil, errorf(codeConflictingUpdate, "Updating the path '%s' would create a conflict at '%s'", b.path, a.path)
		}
	}
	return u, nil
}

func isModifiers(doc document) bool {
	it := elementsOf(doc)
	k, _, ok := it.next()
	return ok && bytes.HasPrefix(k, []byte("$"))
}

// comparePaths: names in byte order, numbers by value. New fields are appended in this order. A
// path comes right before those below it.
func comparePaths(a, b []string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] == b[i] {
			continue
		}
		x, numx := arrayIndex(a[i])
		y, numy := arrayIndex(b[i])
		if numx && numy {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(a[i], b[i])
	}
	return len(a) - len(b)
}

func (u *update) addModifiers(op string, arg value) error {
	switch op {
	case "$set", "$unset", "$inc", "$min", "$max", "$setOnInsert", "$push":
	default:
		return errorf(codeFailedToParse, "Unknown modifier: %s. minimongo has $set, $unset, $inc, $min, $max, $setOnInsert and $push", op)
	}
	if arg.Type != tDocument {
		return errorf(codeFailedToParse, "Modifiers operate on fields but we found type %s instead. For example: {$mod: {<field>: ...}} not {%s: %s}", typeName(arg.Type), op, shell(arg))
	}
	for it := elementsOf(arg.Data); ; {
		k, v, ok := it.next()
		if !ok {
			return nil
		}
		m := modifier{op: op, path: string(k), parts: splitPath(string(k)), arg: v}
		if err := checkUpdatePath(m); err != nil {
			return err
		}
		switch op {
		case "$inc":
			if !isNumber(v.Type) {
				return errorf(codeTypeMismatch, "Cannot increment with non-numeric argument: {%s: %s}", k, shell(v))
			}
		case "$push":
			if err := m.parsePush(); err != nil {
				return err
			}
		}
		u.mods = append(u.mods, m)
	}
}

func checkUpdatePath(m modifier) error {
	if m.path == "" {
		return errorf(codeEmptyField, "An empty update path is not valid.")
	}
	for _, part := range m.parts {
		if part == "" {
			return errorf(codeEmptyField, "The update path '%s' contains an empty field name, which is not allowed.", m.path)
		}
		if part == "$" || strings.HasPrefix(part, "$[") {
			return errorf(codeBadValue, "minimongo has no positional operator: %s", m.path)
		}
		if part[0] == '$' {
			return errorf(codeDollarField, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", part, m.path)
		}
	}
	return nil
}

func (m *modifier) parsePush() error {
	m.each = []value{m.arg}
	if m.arg.Type != tDocument || !isModifiers(m.arg.Data) {
		return nil
	}
	m.each = nil
	given := false
	for it := elementsOf(m.arg.Data); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		switch string(k) {
		case "$each":
			if v.Type != tArray {
				return errorf(codeBadValue, "The argument to $each in $push must be an array but it was of type %s", typeName(v.Type))
			}
			m.each, given = values(v), true
		case "$slice":
			n, ok := integer(v)
			if !ok {
				return errorf(codeBadValue, "The value for $slice must be an integer value but was given type: %s", typeName(v.Type))
			}
			m.slice = &n
		default:
			return errorf(codeBadValue, "Unrecognized clause in $push: %s. minimongo has $each and $slice", k)
		}
	}
	if !given {
		return errorf(codeBadValue, "minimongo needs $each in a $push with $slice")
	}
	return nil
}

// apply gives the changed document. insert is set for the document that an upsert makes.
func (u *update) apply(old document, insert bool) (document, error) {
	if u.replacement != nil {
		return u.replace(old)
	}
	t := newTree(old, false)
	for i := range u.mods {
		if err := u.mods[i].apply(t, old, insert); err != nil {
			return nil, err
		}
	}
	dst := t.appendTo(make([]byte, 0, len(old)+64))
	before, had := field(old, "_id")
	after, has := field(dst, "_id")
	if had && (!has || !sameValue(before, after)) {
		return nil, errorf(codeImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	}
	return dst, checkSize(dst)
}

// sameValue: 1 and 1.0 are the same _id, but an _id may not change from one to the other.
func sameValue(a, b value) bool { return a.Type == b.Type && bytes.Equal(a.Data, b.Data) }

// replace keeps the _id and puts it first.
func (u *update) replace(old document) (document, error) {
	id, had := field(old, "_id")
	given, has := field(u.replacement, "_id")
	if had && has && compare(id, given) != 0 {
		return nil, errorf(codeImmutableField, "After applying the update, the (immutable) field '_id' was found to have been altered to _id: %s", shell(given))
	}
	if !had {
		id, had = given, has
	}
	return withID(id, had, u.replacement), checkSize(u.replacement)
}

// withID puts the _id, if there is one, before the other fields.
func withID(id value, has bool, doc document) document {
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)+24))
	if has {
		dst = appendElement(dst, []byte("_id"), id)
	}
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		if string(k) != "_id" {
			dst = appendElement(dst, k, v)
		}
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

func checkSize(doc document) error {
	if len(doc) > maxDocument {
		return errorf(codeTooLarge, "object to insert too large. size in bytes: %d, max size: %d", len(doc), maxDocument)
	}
	return nil
}

func (m *modifier) apply(t *tree, old document, insert bool) error {
	switch m.op {
	case "$unset":
		t.remove(m.parts)
		return nil
	case "$setOnInsert":
		if !insert {
			return nil
		}
	}
	existed := t.get(m.parts) != nil
	f, err := t.make(m.parts)
	if err != nil {
		return err
	}
	switch m.op {
	case "$set", "$setOnInsert":
		f.set(m.arg)
	case "$min", "$max":
		if c := compare(m.arg, f.value()); !existed || c < 0 && m.op == "$min" || c > 0 && m.op == "$max" {
			f.set(m.arg)
		}
	case "$inc":
		if !existed {
			f.set(m.arg)
			return nil
		}
		sum, err := add(f.value(), m.arg)
		if err != nil {
			id, _ := field(old, "_id")
			if err == errNotNumeric {
				return errorf(codeTypeMismatch, "Cannot apply $inc to a value of non-numeric type. {_id: %s} has the field '%s' of non-numeric type %s",
					shell(id), m.parts[len(m.parts)-1], typeName(f.value().Type))
			}
			return errorf(codeBadValue, "Failed to apply $inc operations to current value (%s) for document {_id: %s}", shell(f.value()), shell(id))
		}
		f.set(sum)
	case "$push":
		if !existed {
			f.sub = &tree{array: true}
		}
		if f.open() == nil || !f.sub.array {
			id, _ := field(old, "_id")
			return errorf(codeBadValue, "The field '%s' must be an array but is of type %s in document {_id: %s}", m.path, typeName(f.value().Type), shell(id))
		}
		m.push(f.sub)
	}
	return nil
}

func (m *modifier) push(arr *tree) {
	for _, v := range m.each {
		arr.fields = append(arr.fields, treeField{val: v})
	}
	if m.slice == nil {
		return
	}
	n, have := *m.slice, int64(len(arr.fields))
	switch {
	case n >= 0 && n < have:
		arr.fields = arr.fields[:n]
	case n < 0 && -n < have:
		arr.fields = arr.fields[have+n:]
	}
}

var (
	errNotNumeric = errorf(codeTypeMismatch, "not a number")
	errOverflow   = errorf(codeBadValue, "out of the range of a 64-bit integer")
)

// add sums numbers by MongoDB's rules: the wider type wins, an int32 grows into an int64, an int64 does not overflow.
func add(a, b value) (value, error) {
	if !isNumber(a.Type) || !isNumber(b.Type) {
		return value{}, errNotNumeric
	}
	switch {
	case a.Type == tDecimal || b.Type == tDecimal:
		return addDecimal(a, b)
	case a.Type == tDouble || b.Type == tDouble:
		return doubleValue(a.AsFloat64() + b.AsFloat64()), nil
	}
	x, _ := integer(a)
	y, _ := integer(b)
	sum := x + y
	if (sum > x) != (y > 0) && y != 0 {
		return value{}, errOverflow
	}
	if a.Type == tInt32 && b.Type == tInt32 && sum >= math.MinInt32 && sum <= math.MaxInt32 {
		return int32Value(int32(sum)), nil
	}
	return int64Value(sum), nil
}

func addDecimal(a, b value) (value, error) {
	x, exp1, ok1 := decimalParts(a)
	y, exp2, ok2 := decimalParts(b)
	if !ok1 || !ok2 {
		return value{}, errorf(codeBadValue, "minimongo does not add NaN or Infinity to a decimal")
	}
	exp := min(exp1, exp2)
	scale := func(n *big.Int, by int) *big.Int {
		return new(big.Int).Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(by)), nil))
	}
	sum := new(big.Int).Add(scale(x, exp1-exp), scale(y, exp2-exp))
	d, ok := bson.ParseDecimal128FromBigInt(sum, exp)
	if !ok {
		return value{}, errorf(codeBadValue, "minimongo does not round decimals: %s + %s", shell(a), shell(b))
	}
	h, l := d.GetBytes()
	return value{Type: tDecimal, Data: bsoncore.AppendDecimal128(nil, h, l)}, nil
}

func decimalParts(v value) (*big.Int, int, bool) {
	switch v.Type {
	case tDecimal:
		n, exp, err := decimal(v).BigInt()
		return n, exp, err == nil
	case tDouble:
		d, err := bson.ParseDecimal128(new(big.Float).SetFloat64(f64(v)).Text('g', 15)) // as MongoDB: 15 digits
		if err != nil {
			return nil, 0, false
		}
		n, exp, err := d.BigInt()
		return n, exp, err == nil
	}
	n, ok := integer(v)
	return big.NewInt(n), 0, ok
}
