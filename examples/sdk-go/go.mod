module github.com/stepwell-dev/stepwell/examples/sdk-go

go 1.26.0

require github.com/stepwell-dev/stepwell/sdk v0.0.0

replace github.com/stepwell-dev/stepwell/sdk => ../../sdk
