// Bessel and Airy functions. The approximations are those of the Cephes Mathematical Library (Moshier),
// which torch's own kernels use as well.
#include <cmath>
#include <numbers>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::abs;
using hlo::Compare;
using hlo::compare;
using hlo::cos;
using hlo::exp;
using hlo::like;
using hlo::log;
using hlo::select;
using hlo::sin;
using hlo::sqrt;
using std::numbers::pi;

constexpr double kSqrt2OverPi = 0.797884560802865355879892119868763737;
constexpr double kTwoOverPi = 0.636619772367581343075535053490057448;

Value at_most(const Value& x, double bound) { return compare(Compare::kLe, x, bound); }
Value odd(const Value& x, const Value& value) { return select(less(x, 0.0), -value, value); }

// --- modified functions of the first kind ---------------------------------------------------------

/// The variable of the series on [0, 8] and of those on [8, infinity).
Value near_variable(const Value& x) { return x * 0.5 - 2.0; }
Value far_variable(const Value& x) { return 32.0 / x - 2.0; }

/// exp(-|x|) I0(x)
Value scaled_i0(const Value& argument) {
  const Value x = abs(argument);
  const Value near =
      chebyshev(near_variable(x),
                {-4.41534164647933937950e-18, 3.33079451882223809783e-17,  -2.43127984654795469359e-16,
                 1.71539128555513303061e-15,  -1.16853328779934516808e-14, 7.67618549860493561688e-14,
                 -4.85644678311192946090e-13, 2.95505266312963983461e-12,  -1.72682629144155570723e-11,
                 9.67580903537323691224e-11,  -5.18979560163526290666e-10, 2.65982372468238665035e-9,
                 -1.30002500998624804212e-8,  6.04699502254191894932e-8,   -2.67079385394061173391e-7,
                 1.11738753912010371815e-6,   -4.41673835845875056359e-6,  1.64484480707288970893e-5,
                 -5.75419501008210370398e-5,  1.88502885095841655729e-4,   -5.76375574538582365885e-4,
                 1.63947561694133579842e-3,   -4.32430999505057594430e-3,  1.05464603945949983183e-2,
                 -2.37374148058994688156e-2,  4.93052842396707084878e-2,   -9.49010970480476444210e-2,
                 1.71620901522208775349e-1,   -3.04682672343198398683e-1,  6.76795274409476084995e-1});
  const Value far = chebyshev(
      far_variable(x), {-7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17,
                        3.46122286769746109310e-17,  -2.82762398051658348494e-16, -3.42548561967721913462e-16,
                        1.77256013305652638360e-15,  3.81168066935262242075e-15,  -9.55484669882830764870e-15,
                        -4.15056934728722208663e-14, 1.54008621752140982691e-14,  3.85277838274214270114e-13,
                        7.18012445138366623367e-13,  -1.79417853150680611778e-12, -1.32158118404477131188e-11,
                        -3.14991652796324136454e-11, 1.18891471078464383424e-11,  4.94060238822496958910e-10,
                        3.39623202570838634515e-9,   2.26666899049817806459e-8,   2.04891858946906374183e-7,
                        2.89137052083475648297e-6,   6.88975834691682398426e-5,   3.36911647825569408990e-3,
                        8.04490411014108831608e-1});
  return select(at_most(x, 8.0), near, far * hlo::rsqrt(x));
}

/// exp(-|x|) I1(x)
Value scaled_i1(const Value& argument) {
  const Value x = abs(argument);
  const Value near =
      chebyshev(near_variable(x),
                {2.77791411276104639959e-18,  -2.11142121435816608115e-17, 1.55363195773620046921e-16,
                 -1.10559694773538630805e-15, 7.60068429473540693410e-15,  -5.04218550472791168711e-14,
                 3.22379336594557470981e-13,  -1.98397439776494371520e-12, 1.17361862988909016308e-11,
                 -6.66348972350202774223e-11, 3.62559028155211703701e-10,  -1.88724975172282928790e-9,
                 9.38153738649577178388e-9,   -4.44505912879632808065e-8,  2.00329475355213526229e-7,
                 -8.56872026469545474066e-7,  3.47025130813767847674e-6,   -1.32731636560394358279e-5,
                 4.78156510755005422638e-5,   -1.61760815825896745588e-4,  5.12285956168575772895e-4,
                 -1.51357245063125314899e-3,  4.15642294431288815669e-3,   -1.05640848946261981558e-2,
                 2.47264490306265168283e-2,   -5.29459812080949914269e-2,  1.02643658689847095384e-1,
                 -1.76416518357834055153e-1,  2.52587186443633654823e-1});
  const Value far = chebyshev(
      far_variable(x), {7.51729631084210481353e-18,  4.41434832307170791151e-18,  -4.65030536848935832153e-17,
                        -3.20952592199342395980e-17, 2.96262899764595013876e-16,  3.30820231092092828324e-16,
                        -1.88035477551078244854e-15, -3.81440307243700780478e-15, 1.04202769841288027642e-14,
                        4.27244001671195135429e-14,  -2.10154184277266431302e-14, -4.08355111109219731823e-13,
                        -7.19855177624590851209e-13, 2.03562854414708950722e-12,  1.41258074366137813316e-11,
                        3.25260358301548823856e-11,  -1.89749581235054123450e-11, -5.58974346219658380687e-10,
                        -3.83538038596423702205e-9,  -2.63146884688951950684e-8,  -2.51223623787020892529e-7,
                        -3.88256480887769039346e-6,  -1.10588938762623716291e-4,  -9.76109749136146840777e-3,
                        7.78576235018280120474e-1});
  return odd(argument, select(at_most(x, 8.0), near * x, far * hlo::rsqrt(x)));
}

Value i0(const Value& x) { return exp(abs(x)) * scaled_i0(x); }
Value i1(const Value& x) { return exp(abs(x)) * scaled_i1(x); }

// --- modified functions of the second kind --------------------------------------------------------

/// Infinite at zero, undefined below.
Value right_half(const Value& x, const Value& value) {
  return select(equal(x, 0.0), like(x, INFINITY), select(less(x, 0.0), like(x, NAN), value));
}

Value k0(const Value& x, bool scaled) {
  const Value near = chebyshev(
      x * x - 2.0, {1.37446543561352307156e-16, 4.25981614279661018399e-14, 1.03496952576338420167e-11,
                    1.90451637722020886025e-9, 2.53479107902614945675e-7, 2.28621210311945178607e-5,
                    1.26461541144692592338e-3, 3.59799365153615016266e-2, 3.44289899924628486886e-1,
                    -5.35327393233902768720e-1});
  const Value far =
      chebyshev(8.0 / x - 2.0,
                {5.30043377268626276149e-18,  -1.64758043015242134646e-17, 5.21039150503902756861e-17,
                 -1.67823109680541210385e-16, 5.51205597852431940784e-16,  -1.84859337734377901440e-15,
                 6.34007647740507060557e-15,  -2.22751332699166985548e-14, 8.03289077536357521100e-14,
                 -2.98009692317273043925e-13, 1.14034058820847496303e-12,  -4.51459788337394416547e-12,
                 1.85594911495471785253e-11,  -7.95748924447710747776e-11, 3.57739728140030116597e-10,
                 -1.69753450938905987466e-9,  8.57403401741422608519e-9,   -4.66048989768794782956e-8,
                 2.76681363944501510342e-7,   -1.83175552271911948767e-6,  1.39498137188764993662e-5,
                 -1.28495495816278026384e-4,  1.56988388573005337491e-3,   -3.14481013119645005427e-2,
                 2.44030308206595545468}) *
      hlo::rsqrt(x);
  const Value inner = near - log(0.5 * x) * i0(x);
  const Value value =
      scaled ? select(at_most(x, 2.0), inner * exp(x), far) : select(at_most(x, 2.0), inner, far * exp(-x));
  return right_half(x, value);
}

Value k1(const Value& x, bool scaled) {
  const Value near = chebyshev(
      x * x - 2.0, {-7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13,
                    -1.41148839263352776110e-10, -2.21338763073472585583e-8, -2.43340614156596823496e-6,
                    -1.73028895751305206302e-4, -6.97572385963986435018e-3, -1.22611180822657148235e-1,
                    -3.53155960776544875667e-1, 1.52530022733894777053});
  const Value far =
      chebyshev(8.0 / x - 2.0,
                {-5.75674448366501715755e-18, 1.79405087314755922667e-17,  -5.68946255844285935196e-17,
                 1.83809354436663880070e-16,  -6.05704724837331885336e-16, 2.03870316562433424052e-15,
                 -7.01983709041831346144e-15, 2.47715442448130437068e-14,  -8.97670518232499435011e-14,
                 3.34841966607842919884e-13,  -1.28917396095102890680e-12, 5.13963967348173025100e-12,
                 -2.12996783842756842877e-11, 9.21831518760500529508e-11,  -4.19035475934189648750e-10,
                 2.01504975519703286596e-9,   -1.03457624656780970260e-8,  5.74108412545004946722e-8,
                 -3.50196060308781257119e-7,  2.40648494783721712015e-6,   -1.93619797416608296024e-5,
                 1.95215518471351631108e-4,   -2.85781685962277938680e-3,  1.03923736576817238437e-1,
                 2.72062619048444266945}) *
      hlo::rsqrt(x);
  const Value inner = log(0.5 * x) * i1(x) + near / x;
  const Value value =
      scaled ? select(at_most(x, 2.0), inner * exp(x), far) : select(at_most(x, 2.0), inner, far * exp(-x));
  return right_half(x, value);
}

// --- functions of order zero and one --------------------------------------------------------------

/// Beyond five: sqrt(2 / (pi x)) * (p * cos(t) - q * sin(t)) is J and the other combination is Y.
struct Oscillation {
  Value p, q, angle, amplitude;
  Value j() const { return (p * cos(angle) - q * sin(angle)) * amplitude; }
  Value y() const { return (p * sin(angle) + q * cos(angle)) * amplitude; }
};

Oscillation oscillation0(const Value& x) {
  const Value z = 25.0 / (x * x);
  const Value p = polynomial(z, {7.96936729297347051624e-4, 8.28352392107440799803e-2, 1.23953371646414299388,
                                 5.44725003058768775090, 8.74716500199817011941, 5.30324038235394892183,
                                 9.99999999999999997821e-1}) /
                  polynomial(z, {9.24408810558863637013e-4, 8.56288474354474431428e-2, 1.25352743901058953537,
                                 5.47097740330417105182, 8.76190883237069594232, 5.30605288235394617618,
                                 1.00000000000000000218});
  const Value q =
      polynomial(z, {-1.13663838898469149931e-2, -1.28252718670509318512, -1.95539544257735972385e1,
                     -9.32060152123768231369e1, -1.77681167980488050595e2, -1.47077505154951170175e2,
                     -5.14105326766599330220e1, -6.05014350600728481186}) /
      polynomial(z, {6.43178256118178023184e1, 8.56430025976980587198e2, 3.88240183605401609683e3,
                     7.24046774195652478189e3, 5.93072701187316984827e3, 2.06209331660327847417e3,
                     2.42005740240291393179e2});
  return {p, 5.0 / x * q, x - pi * 0.25, kSqrt2OverPi * hlo::rsqrt(x)};
}

Oscillation oscillation1(const Value& x) {
  const Value z = 25.0 / (x * x);
  const Value p = polynomial(z, {7.62125616208173112003e-4, 7.31397056940917570436e-2, 1.12719608129684925192,
                                 5.11207951146807644818, 8.42404590141772420927, 5.21451598682361504063,
                                 1.00000000000000000254}) /
                  polynomial(z, {5.71323128072548699714e-4, 6.88455908754495404082e-2, 1.10514232634061696926,
                                 5.07386386128601488557, 8.39985554327604159757, 5.20982848682361821619,
                                 9.99999999999999997461e-1});
  const Value q = polynomial(z, {5.10862594750176621635e-2, 4.98213872951233449420, 7.58238284132545283818e1,
                                 3.66779609360150777800e2, 7.10856304998926107277e2, 5.97489612400613639965e2,
                                 2.11688757100572135698e2, 2.52070205858023719784e1}) /
                  polynomial(z, {7.42373277035675149943e1, 1.05644886038262816351e3, 4.98641058337653607651e3,
                                 9.56231892404756170795e3, 7.99704160447350683650e3, 2.82619278517639096600e3,
                                 3.36093607810698293419e2});
  return {p, 5.0 / x * q, x - pi * 0.75, kSqrt2OverPi * hlo::rsqrt(x)};
}

Value j0_inside(const Value& x) {
  const Value z = x * x;
  const Value ratio =
      polynomial(z, {-4.79443220978201773821e9, 1.95617491946556577543e12, -2.49248344360967716204e14,
                     9.70862251047306323952e15}) /
      polynomial(z, {4.99563147152651017219e2, 1.73785401676374683123e5, 4.84409658339962045305e7,
                     1.11855537045356834862e10, 2.11277520115489217587e12, 3.10518229857422583814e14,
                     3.18121955943204943306e16, 1.71086294081043136091e18});
  const Value roots = (z - 5.78318596294678452118) * (z - 30.4712623436620863991);
  return select(less(x, 1e-5), 1.0 - z * 0.25, roots * ratio);
}

Value j1_inside(const Value& x) {
  const Value z = x * x;
  const Value ratio =
      polynomial(z, {-8.99971225705559398224e8, 4.52228297998194034323e11, -7.27494245221818276015e13,
                     3.68295732863852883286e15}) /
      polynomial(z, {6.20836478118054335476e2, 2.56987256757748830383e5, 8.35146791431949253037e7,
                     2.21511595479792499675e10, 4.74914122079991414898e12, 7.84369607876235854894e14,
                     8.95222336184627338078e16, 5.32278620332680085395e18});
  return ratio * x * (z - 14.6819706421238932572) * (z - 49.2184563216946036703);
}

Value j0(const Value& argument) {
  const Value x = abs(argument);
  return select(at_most(x, 5.0), j0_inside(x), oscillation0(x).j());
}

Value j1(const Value& argument) {
  const Value x = abs(argument);
  return odd(argument, select(at_most(x, 5.0), j1_inside(x), oscillation1(x).j()));
}

/// Minus infinity at zero, undefined below.
Value right_half_of_y(const Value& x, const Value& value) {
  return select(equal(x, 0.0), like(x, -INFINITY), select(less(x, 0.0), like(x, NAN), value));
}

Value y0(const Value& x) {
  const Value z = x * x;
  const Value ratio =
      polynomial(z, {1.55924367855235737965e4, -1.46639295903971606143e7, 5.43526477051876500413e9,
                     -9.82136065717911466409e11, 8.75906394395366999549e13, -3.46628303384729719441e15,
                     4.42733268572569800351e16, -1.84950800436986690637e16}) /
      polynomial(z, {1.04128353664259848412e3, 6.26107330137134956842e5, 2.68919633393814121987e8,
                     8.64002487103935000337e10, 2.02979612750105546709e13, 3.17157752842975028269e15,
                     2.50596256172653059228e17});
  const Value inside = ratio + kTwoOverPi * log(x) * j0_inside(x);
  return right_half_of_y(x, select(at_most(x, 5.0), inside, oscillation0(x).y()));
}

Value y1(const Value& x) {
  const Value z = x * x;
  const Value ratio =
      polynomial(z, {1.26320474790178026440e9, -6.47355876379160291031e11, 1.14509511541823727583e14,
                     -8.12770255501325109621e15, 2.02439475713594898196e17, -7.78877196265950026825e17}) /
      polynomial(z, {5.94301592346128195359e2, 2.35564092943068577943e5, 7.34811944459721705660e7,
                     1.87601316108706159478e10, 3.88231277496238566008e12, 6.20557727146953693363e14,
                     6.87141087355300489866e16, 3.97270608116560655612e18});
  const Value inside = x * ratio + kTwoOverPi * (j1_inside(x) * log(x) - 1.0 / x);
  return right_half_of_y(x, select(at_most(x, 5.0), inside, oscillation1(x).y()));
}

Value spherical_j0(const Value& x) {
  const Value series = polynomial(x * x, {1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
                                          -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0});
  const Value value = select(less(abs(x), 0.5), series, sin(x) / x);
  return select(equal(abs(x), INFINITY), like(x, 0.0), value);
}

// --- the Airy function ----------------------------------------------------------------------------

constexpr double kInverseSqrtPi = 0.564189583547756286948;

/// The angle less whole turns, which f32 could not tell from its fraction.
Value less_turns(const Value& angle) { return angle - 2.0 * pi * hlo::floor(angle * (0.5 / pi)); }

Value airy_left(const Value& x) {
  const Value root = sqrt(-x);
  const Value precise = hlo::convert(x, DType::kF64);
  const Value angle = precise * sqrt(-precise) * (-2.0 / 3.0);
  const Value phase = hlo::convert(angle, x.dtype());
  const Value z = 1.0 / phase;
  const Value square = z * z;
  const Value f =
      polynomial(square,
                 {-1.31696323418331795333e-1, -6.26456544431912369773e-1, -6.93158036036933542233e-1,
                  -2.79779981545119124951e-1, -4.91900132609500318020e-2, -4.06265923594885404393e-3,
                  -1.59276496239262096340e-4, -2.77649108155232920844e-6, -1.67787698489114633780e-8}) /
      polynomial(square, {1.33560420706553243746e1, 3.26825032795224613948e1, 2.67367040941499554804e1,
                          9.18707402907259625840, 1.47529146771666414581, 1.15687173795188044134e-1,
                          4.40291641615211203805e-3, 7.54720348287414296618e-5, 4.51850092970580378464e-7});
  const Value g =
      polynomial(square, {1.97339932091685679179e-2, 3.91103029615688277255e-1, 1.06579897599595591108,
                          9.39169229816650230044e-1, 3.51465656105547619242e-1, 6.33888919628925490927e-2,
                          5.85804113048388458567e-3, 2.82851600836737019778e-4, 6.98793669997260967291e-6,
                          8.11789239554389293311e-8, 3.41551784765923618484e-10}) /
      polynomial(square, {9.30892908077441974853, 1.98352928718312140417e1, 1.55646628932864612953e1,
                          5.47686069422975497931, 9.54293611618961883998e-1, 8.64580826352392193095e-2,
                          4.12656523824222607191e-3, 1.01259085116509135510e-4, 1.17166733214413521882e-6,
                          4.91834570062930015649e-9});
  const Value t = hlo::convert(less_turns(angle + 0.25 * pi), x.dtype());
  return kInverseSqrtPi * hlo::rsqrt(root) * (sin(t) * (1.0 + square * f) - cos(t) * (z * g));
}

Value airy_right(const Value& x) {
  const Value root = sqrt(x);
  const Value phase = 2.0 * x * root / 3.0;
  const Value z = 1.0 / phase;
  const Value ratio =
      polynomial(z, {3.46538101525629032477e-1, 1.20075952739645805542e1, 7.62796053615234516538e1,
                     1.68089224934630576269e2, 1.59756391350164413639e2, 7.05360906840444183113e1,
                     1.40264691163389668864e1, 9.99999999999999995305e-1}) /
      polynomial(z, {5.67594532638770212846e-1, 1.47562562584847203173e1, 8.45138970141474626562e1,
                     1.77318088145400459522e2, 1.64234692871529701831e2, 7.14778400825575695274e1,
                     1.40959135607834029598e1, 1.00000000000000000470});
  return 0.5 * kInverseSqrtPi * ratio * hlo::rsqrt(root) * exp(-phase);
}

/// The Maclaurin series for |x| <= 2.09: twelve terms reach the precision of f64.
Value airy_centre(const Value& x) {
  const Value cube = x * x * x;
  Value m = like(x, 1.0), n = x, f = m, g = n;
  const int terms = x.dtype() == DType::kF64 ? 14 : 8;
  for (int i = 1; i <= terms; ++i) {
    const double k = 3.0 * i;
    m = m * cube * (1.0 / ((k - 1.0) * k));
    n = n * cube * (1.0 / (k * (k + 1.0)));
    f = f + m;
    g = g + n;
  }
  return 0.355028053887817239260 * f - 0.258819403792806798405 * g;
}

Value airy(const Value& x) {
  const Value value =
      select(less(x, -2.09), airy_left(x), select(less(x, 2.09), airy_centre(x), airy_right(x)));
  const Value vanished = select(greater(x, 103.892), like(x, 0.0), value);
  return select(equal(abs(x), INFINITY), like(x, NAN), vanished);
}

}  // namespace

INEXACT_UNARY("aten::i0", i0(x))
INEXACT_UNARY("aten::special_i0e", scaled_i0(x))
INEXACT_UNARY("aten::special_i1", i1(x))
INEXACT_UNARY("aten::special_i1e", scaled_i1(x))
INEXACT_UNARY("aten::special_modified_bessel_i0", i0(x))
INEXACT_UNARY("aten::special_modified_bessel_i1", i1(x))
INEXACT_UNARY("aten::special_modified_bessel_k0", k0(x, false))
INEXACT_UNARY("aten::special_modified_bessel_k1", k1(x, false))
INEXACT_UNARY("aten::special_scaled_modified_bessel_k0", k0(x, true))
INEXACT_UNARY("aten::special_scaled_modified_bessel_k1", k1(x, true))
INEXACT_UNARY("aten::special_bessel_j0", j0(x))
INEXACT_UNARY("aten::special_bessel_j1", j1(x))
INEXACT_UNARY("aten::special_bessel_y0", y0(x))
INEXACT_UNARY("aten::special_bessel_y1", y1(x))
INEXACT_UNARY("aten::special_spherical_bessel_j0", spherical_j0(x))
INEXACT_UNARY("aten::special_airy_ai", airy(x))

}  // namespace torch_tpu::ops
