package minimongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A request is one command as it came in.
type request struct {
	ctx       context.Context
	name, db  string
	body      document
	sequences map[string][]document // kind-1 sections
	conn      int32
}

// each gives the fields of a command, apart from those that every command may have. fn says whether it knows
// the field; what nobody knows is refused by name.
func (r *request) each(fn func(key string, v value) (known bool, err error)) error {
	it := elementsOf(r.body)
	it.next() // the command's own name
	for {
		k, v, ok := it.next()
		if !ok {
			break
		}
		key := string(k)
		known, err := common(key, v)
		if !known && err == nil {
			known, err = fn(key, v)
		}
		if err != nil {
			return err
		}
		if !known {
			return errorf(codeUnknownField, "BSON field '%s.%s' is an unknown field (or one that minimongo does not have).", r.name, key)
		}
	}
	for key := range r.sequences {
		if known, err := fn(key, value{Type: tArray}); err != nil || !known {
			return errorf(codeUnknownField, "BSON field '%s.%s' is an unknown field.", r.name, key)
		}
	}
	return nil
}

func common(key string, v value) (known bool, err error) {
	switch key {
	case "$db", "lsid", "$clusterTime", "$readPreference", "comment", "maxTimeMS", "maxTimeMSOpOnly":
		return true, nil
	case "txnNumber", "autocommit", "startTransaction":
		return true, errorf(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos; minimongo is a standalone server")
	case "readConcern":
		return true, checkReadConcern(v)
	case "writeConcern":
		return true, checkWriteConcern(v)
	case "apiVersion":
		if v.Type != tString || string(str(v)) != "1" {
			return true, errorf(322, "API version must be \"1\"")
		}
		return true, nil
	case "apiStrict", "apiDeprecationErrors":
		return true, nil
	}
	return false, nil
}

func checkReadConcern(v value) error {
	if v.Type != tDocument {
		return errorf(codeTypeMismatch, "readConcern must be an object")
	}
	for it := elementsOf(v.Data); ; {
		k, e, ok := it.next()
		if !ok {
			return nil
		}
		if string(k) != "level" || e.Type != tString {
			return errorf(codeInvalidOptions, "minimongo has no readConcern %s: %s", k, shell(e))
		}
		switch string(str(e)) {
		case "local", "available", "majority", "linearizable":
		default:
			return errorf(codeInvalidOptions, "minimongo has no readConcern level %s", shell(e))
		}
	}
}

// checkWriteConcern: one server is a majority, and every answer waits for the commit, journaled or not.
func checkWriteConcern(v value) error {
	if v.Type != tDocument {
		return errorf(codeTypeMismatch, "writeConcern must be an object")
	}
	for it := elementsOf(v.Data); ; {
		k, e, ok := it.next()
		if !ok {
			return nil
		}
		switch string(k) {
		case "j", "wtimeout", "fsync":
		case "w":
			if n, ok := integer(e); ok && n > 1 {
				return errorf(codeBadValue, "cannot use 'w' > 1 when a host is not replicated")
			}
			if e.Type == tString && string(str(e)) != "majority" {
				return errorf(codeBadValue, "cannot use non-majority 'w' mode %s when a host is not a member of a replica set", shell(e))
			}
		default:
			return errorf(codeFailedToParse, "minimongo has no writeConcern field %s", k)
		}
	}
}

// collection reads the value of the command's own name.
func (r *request) collection() (string, error) {
	it := elementsOf(r.body)
	_, v, _ := it.next()
	if v.Type != tString {
		return "", errorf(codeInvalidNamespace, "collection name has invalid type %s", typeName(v.Type))
	}
	name := string(str(v))
	return name, checkNamespace(r.db, name)
}

// list takes an array of documents from the body or from a document sequence.
func (r *request) list(key string, v value) ([]document, error) {
	if docs, ok := r.sequences[key]; ok {
		return docs, nil
	}
	if v.Type != tArray {
		return nil, errorf(codeTypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type 'array'", r.name, key, typeName(v.Type))
	}
	var docs []document
	for _, e := range values(v) {
		if e.Type != tDocument {
			return nil, errorf(codeTypeMismatch, "BSON field '%s.%s' holds a %s, expected type 'object'", r.name, key, typeName(e.Type))
		}
		docs = append(docs, e.Data)
	}
	return docs, nil
}

// deadline is the time limit that the command carries.
func (r *request) deadline() (time.Duration, error) {
	v, ok := field(r.body, "maxTimeMS")
	if !ok {
		return 0, nil
	}
	n, ok := integer(v)
	if !ok || n < 0 {
		return 0, errorf(codeBadValue, "maxTimeMS has to be a non-negative integer, not %s", shell(v))
	}
	return time.Duration(n) * time.Millisecond, nil
}

func wantDocument(key string, v value) (document, error) {
	if v.Type == tNull {
		return emptyDocument, nil
	}
	if v.Type != tDocument {
		return nil, errorf(codeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'object'", key, typeName(v.Type))
	}
	return v.Data, nil
}

func wantFilter(key string, v value) (*filter, error) {
	doc, err := wantDocument(key, v)
	if err != nil {
		return nil, err
	}
	return parseFilter(doc)
}

func wantSort(key string, v value) ([]sortField, error) {
	doc, err := wantDocument(key, v)
	if err != nil {
		return nil, err
	}
	return parseSort(doc)
}

func wantProjection(key string, v value) (*projection, error) {
	doc, err := wantDocument(key, v)
	if err != nil {
		return nil, err
	}
	return parseProjection(doc)
}

func wantCount(key string, v value) (int64, error) {
	n, ok := integer(v)
	if !ok {
		return 0, errorf(codeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected a whole number", key, typeName(v.Type))
	}
	if n < 0 {
		return 0, errorf(51024, "BSON field '%s' value must be >= 0, actual value '%d'", key, n)
	}
	return n, nil
}

func wantString(key string, v value) (string, error) {
	if v.Type != tString {
		return "", errorf(codeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'string'", key, typeName(v.Type))
	}
	return string(str(v)), nil
}

func wantBool(key string, v value) (bool, error) {
	if v.Type != tBool && !isNumber(v.Type) {
		return false, errorf(codeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'bool'", key, typeName(v.Type))
	}
	return truthy(v), nil
}

var emptyDocument = document(bsoncore.NewDocumentBuilder().Build())
