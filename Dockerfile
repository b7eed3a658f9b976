# The image has one static binary, the certificates it needs to call functions by https, and nothing else: no shell, no
# packages, no root. Time zones (which conditions of signals may name) are in the binary.
#
#   docker build -t stepwell .
#
# The Go version is go.mod's, which a test holds.
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
COPY --from=build /stepwell /stepwell
ENV STEPWELL_LISTEN=:8788 STEPWELL_LOG=json
EXPOSE 8788
USER 65532:65532
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["/stepwell", "health"]
ENTRYPOINT ["/stepwell"]
CMD ["serve"]
