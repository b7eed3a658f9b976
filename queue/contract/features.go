package contract

// Version is the version of the function contract.
const Version = 2

// features are the names of what this server can do beyond version 1 of the contract. Answers are read strictly, so a
// function may use a field or a command only if the call offers its feature.
var features = []string{
	"seen", "commands", "at", "heard", "firstAttempt", "retryAfter",
	"cancelStep", "cancelWait", "cancel",
	"await", "keep", "held",
	"store", "inbox",
}

// Server tells the function in each call what the server can do.
type Server struct {
	Contract int      `json:"contract"`
	Features []string `json:"features"`
}

// Offer returns what this version of the server offers.
func Offer() Server { return Server{Contract: Version, Features: features} }
