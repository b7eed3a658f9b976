package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
)

// lean returns a client of the same server with less overhead, for loads of single requests: the load generator shares
// the CPUs with the measured processes. The client of net/http needs two more goroutines and several allocations per
// request.
//
// It never retries, and only the context's deadline ends a request.
func (c *client) lean() *client {
	return &client{c.url, c.key, lean(&fasthttp.Client{
		MaxConnsPerHost: maxConnections, RetryIfErr: neverRetry, DisablePathNormalizing: true,
	})}
}

func neverRetry(*fasthttp.Request, int, error) (resetTimeout, again bool) { return false, false }

func lean(c *fasthttp.Client) exchanger {
	return func(ctx context.Context, method, url string, header http.Header, body []byte) (int, []byte, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(requestTimeout)
		}
		request, answer := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(request)
		defer fasthttp.ReleaseResponse(answer)
		request.Header.SetMethod(method)
		request.SetRequestURI(url)
		for name, values := range header {
			request.Header.Set(name, values[0])
		}
		request.SetBodyRaw(body)
		err := c.DoDeadline(request, answer, deadline)
		if timeout := interface{ Timeout() bool }(nil); errors.As(err, &timeout) && timeout.Timeout() {
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		if err != nil {
			return 0, nil, err
		}
		return answer.StatusCode(), append([]byte(nil), answer.Body()...), nil
	}
}
