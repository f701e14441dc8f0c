// Package conformance is a suite of tests of what postbit needs of a MongoDB server. It runs against
// minimongo and, with POSTBIT_TEST_MONGO_URI set, against any other server of the protocol, MongoDB
// first of all. Where a server is known to differ from MongoDB, the row says so; the test then
// demands that it still does.
package conformance
