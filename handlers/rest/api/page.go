package api

// Page is one page of a list. The last page has no cursor.
type Page[T any] struct {
	Data   []T    `json:"data"`
	Cursor string `json:"cursor,omitempty"`
}
