module github.com/stepwell-dev/stepwell/sdk

go 1.26.0
