package incoming

// ReplicaLag is the header of an answer that says, in seconds, how far it may be behind what was committed before the
// request. Answers without it are not behind.
const ReplicaLag = "Stepwell-Replica-Lag"
