"""Linear algebra beyond the operator database: conventions of LAPACK, and products that must keep NaN."""
import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_eigenvalues_come_in_the_order_of_the_cpu(dtype):
    matrices = torch.randn(8, 5, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    values, vectors = torch.linalg.eig(matrices.to("tpu"))
    expected, expected_vectors = torch.linalg.eig(matrices)
    torch.testing.assert_close(values.cpu(), expected)
    torch.testing.assert_close(vectors.cpu(), expected_vectors)


@pytest.mark.parametrize("dtype, hermitian", [(torch.float64, False), (torch.complex128, False), (torch.complex128, True)])
def test_indefinite_factors_and_pivots_equal_the_cpu(dtype, hermitian):
    a = torch.randn(4, 7, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    a = a + (a.mH if hermitian else a.mT)
    a[0].diagonal().zero_()  # only blocks of two rows can start there
    expected = torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
    actual = torch.linalg.ldl_factor_ex(a.to("tpu"), hermitian=hermitian)
    for mine, theirs in zip(actual, expected):
        torch.testing.assert_close(mine.cpu(), theirs)
    b = torch.ones(4, 7, 2, dtype=dtype)
    x = torch.linalg.ldl_solve(actual[0], actual[1], b.to("tpu"), hermitian=hermitian)
    torch.testing.assert_close(a @ x.cpu(), b)


def test_determinant_of_a_transposed_matrix_has_its_gradient():
    a = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mT
    mine = a.to("tpu").requires_grad_()
    assert not mine.is_contiguous()
    torch.linalg.det(mine).backward()
    torch.testing.assert_close(mine.grad.cpu(), torch.linalg.det(a) * torch.linalg.inv(a).mT)


@pytest.mark.parametrize("function", [torch.linalg.eig, torch.linalg.eigvals])
def test_eig_refuses_infinities(function):
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        function(torch.full((2, 2), torch.inf, device="tpu"))
        torch.tpu.synchronize()


L = torch.linalg
INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
UNKNOWN = torch.tensor([[1.0, torch.nan], [0.0, 1.0]])
NOTHING = torch.zeros(2, 2)

# The function, and a matrix that it cannot do with.
UNSOLVABLE = {
    "inv_ex": (lambda a: L.inv_ex(a, check_errors=True), SINGULAR),
    "inv_ex out": (lambda a: L.inv_ex(a, check_errors=True, out=(a.clone(), a.sum((-1, -2)).int())), SINGULAR),
    "inv": (L.inv, SINGULAR),
    "cholesky_ex": (lambda a: L.cholesky_ex(a, check_errors=True), INDEFINITE),
    "cholesky": (L.cholesky, INDEFINITE),
    "torch.cholesky": (torch.cholesky, INDEFINITE),
    "cholesky_inverse": (torch.cholesky_inverse, NOTHING),
    "solve_ex": (lambda a: L.solve_ex(a, torch.ones_like(a), check_errors=True), SINGULAR),
    "solve": (lambda a: L.solve(a, torch.ones_like(a)), SINGULAR),
    "lu_factor_ex": (lambda a: L.lu_factor_ex(a, check_errors=True), NOTHING),
    "lu_factor": (L.lu_factor, NOTHING),
    "ldl_factor_ex": (lambda a: L.ldl_factor_ex(a, check_errors=True), NOTHING),
    "matrix_power": (lambda a: L.matrix_power(a, -1), SINGULAR),
    "svd": (L.svd, UNKNOWN),
    "svdvals": (L.svdvals, UNKNOWN),
    "pinv": (L.pinv, UNKNOWN),
    "matrix_rank": (L.matrix_rank, UNKNOWN),
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", UNSOLVABLE)
def test_errors_of_the_cpu(name, batched):
    """Its exception and words, with the number of the matrix."""
    function, matrix = UNSOLVABLE[name]
    if batched:
        matrix = torch.stack([torch.eye(2), matrix, matrix])
    with pytest.raises(RuntimeError) as expected:
        function(matrix)
    with pytest.raises(RuntimeError) as actual:
        function(matrix.to("tpu"))
        torch.tpu.synchronize()
    assert actual.type is expected.type
    assert str(actual.value).startswith(str(expected.value).splitlines()[0])


def test_errors_that_nobody_asked_for():
    inverse, info = L.inv_ex(torch.stack([torch.eye(2), NOTHING]).to("tpu"))
    assert info.tolist() == [0, 1] and torch.equal(inverse[0].cpu(), torch.eye(2))


def test_a_product_with_false_keeps_nan():
    x = torch.tensor([torch.inf, torch.nan, 1.0])
    mask = torch.tensor([False, False, True])
    torch.testing.assert_close((x.to("tpu") * mask.to("tpu")).cpu(), x * mask, equal_nan=True)
