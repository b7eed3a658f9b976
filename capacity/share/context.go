package share

import "context"

type keyOfContext struct{}

// For returns a context for work that is done for the key: what it takes from a [Pool] counts for the key.
func For(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfContext{}, key)
}

// KeyOf returns the key for which work is done; empty for work of the server itself.
func KeyOf(ctx context.Context) string {
	key, _ := ctx.Value(keyOfContext{}).(string)
	return key
}
