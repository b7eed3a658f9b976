package rest

// WriteJSON is for the reference's examples.
var WriteJSON = writeJSON
