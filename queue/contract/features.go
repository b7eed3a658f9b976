package contract

// features are the names of what this server can do beyond version 1 of the contract. Answers are read strictly, so a
// function may use a field or a command only if the call offers its feature.
var features = []string{
	"await", "keep", "held",
}
