// Package cells tests two cells behind one address, each with its own Postgres and two servers, and before them the
// proxies that deploy/cells configures: HAProxy and nginx.
package cells
