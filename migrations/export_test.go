package migrations

// NewProvider lets tests migrate to a given version.
var NewProvider = newProvider
