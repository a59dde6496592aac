# Serves a run that is mounted at /run; docs/deployment.md has the commands.
#   CPU:  docker build -t pmtrans .
#   CUDA: docker build -t pmtrans:cuda --build-arg BASE=pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime .
ARG BASE=python:3.12-slim
FROM ${BASE}

# given at build time, an index of CPU wheels keeps CUDA's libraries out of a CPU image
ARG PIP_EXTRA_INDEX_URL=

WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src ./src
COPY recipes ./recipes

# a base that brings its own torch keeps it; everything else has the versions of requirements.lock
RUN python -m venv --system-site-packages /opt/pmtrans \
 && if python -c "import torch" 2>/dev/null; then sed -i -E '/^(torch|torchvision)==/d' requirements.lock; fi \
 && /opt/pmtrans/bin/python -m pip install --no-cache-dir -c requirements.lock '.[serve,onnx]' \
 && rm -rf /build

ENV PATH=/opt/pmtrans/bin:$PATH PYTHONUNBUFFERED=1

# a number, so that an orchestrator can see that it is not root
RUN useradd --create-home --uid 10001 pmtrans
USER 10001
WORKDIR /home/pmtrans

EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s \
  CMD ["python", "-c", "from http.client import HTTPConnection as To; to = To('127.0.0.1', 8000, timeout=5); to.request('GET', '/health'); exit(to.getresponse().status != 200)"]
CMD ["pmtrans", "serve", "/run", "--host", "0.0.0.0"]
