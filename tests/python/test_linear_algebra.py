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


def test_eig_refuses_infinities():
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.linalg.eig(torch.full((2, 2), torch.inf, device="tpu"))
        torch.tpu.synchronize()


def test_a_product_with_false_keeps_nan():
    x = torch.tensor([torch.inf, torch.nan, 1.0])
    mask = torch.tensor([False, False, True])
    torch.testing.assert_close((x.to("tpu") * mask.to("tpu")).cpu(), x * mask, equal_nan=True)
