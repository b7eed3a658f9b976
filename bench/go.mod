module github.com/stepwell-dev/stepwell/bench

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/fxamacker/cbor/v2 v2.9.6
	github.com/jackc/pgx/v5 v5.12.0
	github.com/oklog/ulid/v2 v2.1.2
	github.com/prometheus/procfs v0.22.0
	github.com/valyala/fasthttp v1.73.0
)

require golang.org/x/sys v0.47.0 // indirect

require (
	github.com/andybalholm/brotli v1.2.2 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/klauspost/compress v1.19.1 // indirect
	github.com/stepwell-dev/stepwell/sdk v0.0.0
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/stepwell-dev/stepwell/sdk => ../sdk
