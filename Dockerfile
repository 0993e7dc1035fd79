# The service: capture and apply in one image, run as two containers (see docker-compose.yml).
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY config/requirements/run.txt /src/config/requirements/
RUN python -m venv /opt/afterimage \
 && /opt/afterimage/bin/pip install --no-cache-dir --require-hashes -r config/requirements/run.txt
COPY pyproject.toml README.md /src/
COPY afterimage /src/afterimage
COPY cdc /src/cdc
COPY snapshot /src/snapshot
COPY sinks /src/sinks
COPY jobs /src/jobs
COPY config /src/config
RUN /opt/afterimage/bin/pip install --no-cache-dir --no-deps .
# Spark's jars and a Java are part of the image: a container needs no network but its own services.
ENV AFTERIMAGE_CACHE_DIR=/opt/afterimage/cache
RUN /opt/afterimage/bin/python -m cdc.stack.spark

FROM python:3.11-slim-bookworm
RUN useradd --create-home --uid 10001 afterimage && mkdir /data && chown afterimage /data
COPY --from=build /opt/afterimage /opt/afterimage
ENV PATH=/opt/afterimage/bin:$PATH AFTERIMAGE_CACHE_DIR=/opt/afterimage/cache PYTHONUNBUFFERED=1
USER afterimage
WORKDIR /app
VOLUME /data
ENTRYPOINT ["afterimage"]
CMD ["--help"]
