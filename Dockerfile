# syntax=docker/dockerfile:1

FROM python:3.13-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY proxy ./proxy
COPY config ./config
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[encryption]'

FROM python:3.13-slim-trixie
LABEL org.opencontainers.image.title="Lethe" \
      org.opencontainers.image.description="A reverse proxy that forgets an agent's old reasoning and keeps the prompt cache warm" \
      org.opencontainers.image.licenses="MIT"
# The wheels are lent for this one step: no compiler, no cache and no second copy stay in the image.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels 'lethe-proxy[encryption]' \
    && groupadd --system --gid 10001 lethe \
    && useradd --system --uid 10001 --gid lethe --no-create-home --shell /usr/sbin/nologin lethe
COPY config /etc/lethe
ENV LETHE_HOST=0.0.0.0 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /
# 4100: clients. 4101: metrics and health, on loopback until LETHE_ADMIN_HOST and a token say otherwise.
EXPOSE 4100 4101
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('LETHE_PORT') or 4100), timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["lethe"]
CMD ["serve", "--config", "/etc/lethe/lethe.toml"]
