"""A small network built without writing a function, and trained.

Run it with `python -m examples.graph_builder`.
"""

import jax
import jax.numpy as jnp
import optax

import tilejax


def build() -> tilejax.GraphBuilder:
    """An image classifier for any number of images at once."""
    graph = tilejax.GraphBuilder("classifier")
    x = graph.placeholder("image", shape=("batch", 8, 8, 1))
    x = graph.relu(graph.conv2d(x, filters=8, kernel_size=3, stride=1))
    x = graph.max_pool(x, window=2)
    x = graph.relu(graph.dense(graph.flatten(x, start=1), units=32))
    graph.output(graph.dense(x, units=2, name="logits"))
    return graph


def bars(key, count: int):
    """Noisy images of a bar, and whether it is upright."""
    place, kind, noise = jax.random.split(key, 3)
    at = jax.random.randint(place, (count, 1, 1), 0, 8)
    upright = jax.random.bernoulli(kind, 0.5, (count, 1, 1))
    rows, columns = jnp.arange(8)[None, :, None], jnp.arange(8)[None, None, :]
    bar = jnp.where(upright, columns == at, rows == at)
    images = bar + 0.2 * jax.random.normal(noise, (count, 8, 8))
    return images[..., None], upright[:, 0, 0].astype(jnp.int32)


def main() -> None:
    graph = build()
    print(graph)
    params = graph.init(jax.random.key(0))
    assert params["conv2d"]["kernel"].shape == (3, 3, 1, 8)

    # The graph is a function like any other: differentiate it, train it.
    forward = graph.to_function()
    optimiser = optax.adam(3e-3)

    @tilejax.jit
    def step(params, state, images, labels):
        def loss(params):
            logits = forward(params, images)
            return tilejax.ops.cross_entropy(logits, labels).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    state, first = optimiser.init(params), None
    for key in jax.random.split(jax.random.key(1), 60):
        params, state, loss = step(params, state, *bars(key, 64))
        first = loss if first is None else first
    assert first is not None and loss < 0.3 * first, (first, loss)

    # Compiled for any batch: 100 and 120 images are padded to 128, and run the same.
    classify = graph.compile(params=params)
    for count in (100, 120):
        images, labels = bars(jax.random.key(count), count)
        logits = classify(images)
        right = jnp.mean(jnp.argmax(logits, -1) == labels)
        assert logits.shape == (count, 2) and right > 0.95, right
        assert jnp.allclose(logits, forward(params, images), atol=1e-4)

    # A mistake is an error of the call that makes it.
    try:
        graph.matmul(graph.constant(jnp.ones((2, 3))), graph.constant(jnp.ones((4, 5))))
    except tilejax.errors.ShapeError as error:
        print(f"refused: {error}")
    print(f"loss {first:.3f} at the start, {loss:.3f} at the end; {right:.0%} right")


if __name__ == "__main__":
    main()
