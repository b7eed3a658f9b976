package migrations

// NewProvider lets tests stop between two migrations.
var NewProvider = newProvider
