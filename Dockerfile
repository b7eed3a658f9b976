# The image holds one static binary and the CA certificates for calling functions by HTTPS. It has no shell and no
# packages, and does not run as root. The binary embeds the time zone database, because conditions of signals may name
# time zones.
#
#   docker build -t stepwell .
#
# image_test.go checks that the Go version is go.mod's, and builds and runs the image.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -tags timetzdata -ldflags "-s -w" -o /stepwell ./cmd/stepwell

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /stepwell /
ENV STEPWELL_LISTEN=:8788 STEPWELL_LOG=json
EXPOSE 8788
USER 65532:65532
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["/stepwell", "health"]
ENTRYPOINT ["/stepwell"]
CMD ["serve"]
