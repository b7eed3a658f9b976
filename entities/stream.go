package entities

// StreamName names a stream; unique per project.
type StreamName string
