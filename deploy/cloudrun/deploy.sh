#!/bin/sh
# Deploys the service, allows unauthenticated requests (the service checks its own API keys), and schedules a drain every
# minute.
# Usage: REGION=europe-west1 SERVICE_URL=https://… STEPWELL_API_KEY=… deploy/cloudrun/deploy.sh
set -eu
: "${REGION:?}" "${SERVICE_URL:?}" "${STEPWELL_API_KEY:?}"
here=$(dirname "$0")

gcloud run services replace "$here/service.yaml" --region "$REGION"
gcloud run services add-iam-policy-binding stepwell --region "$REGION" \
  --member allUsers --role roles/run.invoker

verb=create header=--headers
if gcloud scheduler jobs describe stepwell-drain --location "$REGION" >/dev/null 2>&1; then
  verb=update header=--update-headers
fi
gcloud scheduler jobs "$verb" http stepwell-drain --location "$REGION" \
  --schedule '* * * * *' --http-method POST \
  --uri "$SERVICE_URL/internal/drain?budget=50s&linger=50s" \
  "$header" "Authorization=Bearer $STEPWELL_API_KEY" \
  --attempt-deadline 300s --max-retry-attempts 0
