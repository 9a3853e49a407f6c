# graphzoo in a container, on the CPU:
#   docker build -t graphzoo .
#   docker run --rm -v "$PWD:/here" graphzoo fit --model knowformer --data umls
# On NVIDIA GPUs, with PyTorch's CUDA build and `docker run --gpus all`:
#   docker build -t graphzoo --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 --build-arg TOOLS="gcc libc6-dev" .
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Triton compiles the call of each kernel with a C compiler; the CPU needs none.
ARG TOOLS=""
RUN if [ -n "$TOOLS" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends $TOOLS && rm -rf /var/lib/apt/lists/*; \
    fi

WORKDIR /graphzoo
# PyTorch first: this layer stays as it is until its version changes.
COPY pyproject.toml ./
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" \
        "$(sed -n 's/^ *"\(torch[<>=][^"]*\)".*/\1/p' pyproject.toml)"
COPY . .
RUN pip install --no-cache-dir .

# Runs, data and caches lie in the folder that is mounted here.
WORKDIR /here
ENV GRAPHZOO_DATA=/here/data XDG_CACHE_HOME=/here/.cache
ENTRYPOINT ["graphzoo"]
CMD ["--help"]
