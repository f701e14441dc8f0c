package minimongo

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// The numbers are MongoDB's.
const (
	codeInternalError       = 1
	codeBadValue            = 2
	codeFailedToParse       = 9
	codeTypeMismatch        = 14
	codeIllegalOperation    = 20
	codeNamespaceNotFound   = 26
	codeIndexNotFound       = 27
	codePathNotViable       = 28
	codeConflictingUpdate   = 40
	codeCursorNotFound      = 43
	codeMaxTimeExpired      = 50
	codeDollarField         = 52
	codeInvalidID           = 53
	codeEmptyField          = 56
	codeCommandNotFound     = 59
	codeImmutableField      = 66
	codeCannotCreateIndex   = 67
	codeInvalidOptions      = 72
	codeInvalidNamespace    = 73
	codeIndexOptionsDiffer  = 85
	codeIndexKeySpecsDiffer = 86
	codeShutdown            = 91
	codeParallelArrays      = 171
	codeKeyTooLong          = 17280
	codeTooLarge            = 10334
	codeDuplicateKey        = 11000
	codeUnknownField        = 40415
	codeUnknownStage        = 40324
)

var codeNames = map[int32]string{
	codeInternalError: "InternalError", codeBadValue: "BadValue", codeFailedToParse: "FailedToParse",
	codeTypeMismatch: "TypeMismatch", codeIllegalOperation: "IllegalOperation", codeNamespaceNotFound: "NamespaceNotFound",
	codeIndexNotFound: "IndexNotFound", codePathNotViable: "PathNotViable", codeConflictingUpdate: "ConflictingUpdateOperators",
	codeCursorNotFound: "CursorNotFound", codeMaxTimeExpired: "MaxTimeMSExpired",
	codeDollarField: "DollarPrefixedFieldName", codeInvalidID: "InvalidIdField", codeEmptyField: "EmptyFieldName",
	codeCommandNotFound: "CommandNotFound", codeImmutableField: "ImmutableField", codeCannotCreateIndex: "CannotCreateIndex",
	codeInvalidOptions: "InvalidOptions", codeInvalidNamespace: "InvalidNamespace",
	codeIndexOptionsDiffer: "IndexOptionsConflict", codeIndexKeySpecsDiffer: "IndexKeySpecsConflict",
	codeShutdown: "ShutdownInProgress", codeParallelArrays: "CannotIndexParallelArrays",
	codeTooLarge: "BSONObjectTooLarge", codeDuplicateKey: "DuplicateKey",
}

// Error is what a command or one statement of it answers with; Code is MongoDB's number for it.
type Error struct {
	Code    int32
	Message string
	// KeyPattern and KeyValue are set for duplicate keys (code 11000).
	KeyPattern, KeyValue bsoncore.Document
}

func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

func errorf(code int32, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// asError keeps an *Error and wraps anything else as an internal error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: codeInternalError, Message: err.Error()}
}

func codeName(code int32) string {
	if n, ok := codeNames[code]; ok {
		return n
	}
	return fmt.Sprintf("Location%d", code)
}

func (e *Error) appendFields(dst []byte, messageKey string) []byte {
	dst = bsoncore.AppendInt32Element(dst, "code", e.Code)
	dst = bsoncore.AppendStringElement(dst, messageKey, e.Message)
	if e.KeyPattern != nil {
		dst = bsoncore.AppendDocumentElement(dst, "keyPattern", e.KeyPattern)
		dst = bsoncore.AppendDocumentElement(dst, "keyValue", e.KeyValue)
	}
	return dst
}
